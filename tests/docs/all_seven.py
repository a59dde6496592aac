"""Run by test_contributing in a copy of the repository that holds every example of docs/extending.md."""

from __future__ import annotations

import io
import json
from pathlib import Path

from pmtrans.inference.inputs import gather
from pmtrans.progress import Reporter
from pmtrans.report.page import write_report
from pmtrans.run.metrics import read_metrics
from pmtrans.run.model_folder import load_model
from pmtrans.settings import load_config
from pmtrans.training.train import train


def test_one_training_takes_all_seven_parts(two_domains: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = two_domains
    listed = tmp_path / "source.jsonl"
    images = sorted(source.rglob("*.png"))
    lines = [json.dumps({"path": str(path.relative_to(tmp_path)), "label": path.parent.name}) for path in images]
    listed.write_text("\n".join(lines))
    overrides = [
        "backbone.name=vit_base_patch16_siglip_224",
        "backbone.weights=none",
        "backbone.options={depth: 2, embed_dim: 32, num_heads: 2}",
        "method.mixing=rowmix",
        *("data.image_size=32", "data.workers=0", "train.batch_size=4", "train.max_steps=4", "train.evaluate_every=2"),
        *("train.log_every=1", "train.baseline=false"),
    ]
    flags = {"data.source": str(listed), "data.target": str(target), "method.name": "mixent"}
    run = tmp_path / "run"
    train(load_config(None, overrides, flags), run, Reporter(quiet=True))
    logged = read_metrics(run / "metrics.jsonl")
    assert all(line["entropy"] > 0 for line in logged if "loss" in line)
    assert all(0 <= line["score.margin"] <= 1 for line in logged if line.get("event") == "evaluation")
    assert any("score.margin" in line for line in logged)
    assert json.loads((run / "classes.json").read_text()) == ["ant", "bee", "cat"]
    backbone = load_model(run / "model").model.backbone
    assert type(backbone).__name__ == "AttentionPooledBackbone"
    page = write_report(run, figures=False).read_text(encoding="utf-8")
    assert '<section id="margins">' in page
    assert "Mean margin" in page
    assert list(gather([str(listed)], io.BytesIO())) == [str(path) for path in images]
