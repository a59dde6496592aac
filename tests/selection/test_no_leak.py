"""Target labels have no say: scrambled, then deleted on disk, and nothing about the training changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file

from pmtrans.progress import Reporter
from pmtrans.run.metrics import TIMES, read_metrics
from pmtrans.settings import load_config
from pmtrans.training.train import train


def trained(source: Path, target: Path, out: Path, settings: list[str]) -> dict[str, object]:
    flags = {"data.source": str(source), "data.target": str(target)}
    overrides = [*settings, "train.evaluate_every=2", "data.holdout=0.3"]
    train(load_config(None, overrides, flags), out, Reporter(quiet=True))
    lines = [
        {name: value for name, value in line.items() if name not in TIMES and not name.startswith("oracle")}
        for line in read_metrics(out / "metrics.jsonl")
    ]
    summary = json.loads((out / "summary.json").read_text())
    return {
        "weights": load_file(out / "model" / "model.safetensors"),
        "metrics": lines,
        "chosen": {key: summary[key] for key in ("selected_step", "selection", "estimate", "verdict")},
    }


def test_training_and_choice_do_not_change_when_target_labels_are_scrambled_or_deleted(
    two_domains: tuple[Path, Path], tmp_path: Path, tiny_settings: list[str]
) -> None:
    source, target = two_domains
    for number, image in enumerate(sorted(target.rglob("*.png"))):
        image.rename(image.with_name(f"{number:03d}-of-the-target.png"))
    true = trained(source, target, tmp_path / "runs" / "true", tiny_settings)

    scrambled = tmp_path / "scrambled"
    for number, image in enumerate(sorted(target.rglob("*.png"))):
        place = scrambled / ("ant", "bee", "cat")[(7 * number) % 3]
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(image, place / image.name)
    flat = tmp_path / "flat"
    flat.mkdir()
    for image in target.rglob("*.png"):
        shutil.copy(image, flat / image.name)

    listed = tmp_path / "listed.csv"
    rows = (f"{image},{image.parent.name}\n" for image in sorted(scrambled.rglob("*.png")))
    listed.write_text("path,label\n" + "".join(rows))

    for name, folder in (("scrambled", scrambled), ("deleted", flat), ("a table of scrambled", listed)):
        other = trained(source, folder, tmp_path / "runs" / name, tiny_settings)
        assert other["metrics"] == true["metrics"], name
        assert other["chosen"] == true["chosen"], name
        weights, expected = other["weights"], true["weights"]
        assert isinstance(weights, dict)
        assert isinstance(expected, dict)
        assert all(torch.equal(weights[key], expected[key]) for key in expected), name
