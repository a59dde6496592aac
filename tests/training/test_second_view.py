"""When a method may look at the target under the untrained backbone too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from pmtrans.config import Config
from pmtrans.data.domains import read_data
from pmtrans.evaluation.passes import run_pass
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder
from pmtrans.selection.evidence import Evidence, read_evidence
from pmtrans.training.build import build_untrained
from pmtrans.training.finished import Finished
from pmtrans.training.train import train, untrained_is_close
from tiny_run import Witness


def stage(right: int, has_evidence: bool = True) -> Finished:
    """Of ten held-out images of two classes, so many are right."""
    labels = torch.tensor([0, 1] * 5)
    called = torch.where(torch.arange(10) < right, labels, 1 - labels)
    logits = torch.nn.functional.one_hot(called, 2).float()
    evidence = Evidence(torch.zeros(10, 3), logits, labels, torch.zeros(4, 3), torch.zeros(4, 2))
    return Finished(0, 1.0, None, [], "", evidence if has_evidence else None)


@pytest.mark.parametrize(
    ("probe", "source_only", "expected"), [(8, 9, True), (8, 10, True), (7, 10, False), (9, 7, True)]
)
def test_the_untrained_backbone_is_looked_at_where_it_tells_the_source_apart(
    probe: int, source_only: int, expected: bool
) -> None:
    assert untrained_is_close(stage(probe), stage(source_only)) == expected


def test_without_a_comparison_the_pretrained_backbone_is_trusted() -> None:
    assert untrained_is_close(stage(5), None)
    assert untrained_is_close(stage(5, has_evidence=False), stage(10))
    assert not untrained_is_close(None, None)  # another process: the main one decides


def test_larger_images_are_a_second_ground_and_the_second_view_takes_them_over(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    options = configure().backbone.options
    torch.manual_seed(0)  # with these weights the classifier begins at odds with its clusters
    save_file(
        timm.create_model("vit_tiny_patch16_224", num_classes=0, **options).state_dict(), tmp_path / "w.safetensors"
    )
    staged = {
        "backbone__weights": str(tmp_path / "w.safetensors"), "data__holdout": 0.3, "train__start": "source",
        "train__max_steps": 2, "method": {"name": "pmtrans", "preset": "best"},
    }  # fmt: skip
    config, alone = configure(**staged), configure(**staged, selection__second_ground=False)
    witness = Witness()
    train(config, tmp_path / "both", witness)
    evidence = read_evidence(RunFolder(tmp_path / "both").probe.evidence)
    data = read_data(config, Reporter(quiet=True))
    model, preprocessing = build_untrained(config, data, 224)
    expected = run_pass(model, data.target.domain.paths, preprocessing, 4, 0).features_MF
    assert evidence.target_ground_MG is not None
    assert evidence.source_ground_NG is not None
    torch.testing.assert_close(evidence.target_ground_MG, expected)
    assert len(evidence.source_ground_NG) == len(data.holdout)
    assert read_evidence(RunFolder(tmp_path / "both").evidence).target_ground_MG is None  # the ground is the probe's
    assert any("Second view: one pass over the source" in line for line in witness.said)

    # without it the training is the same: only what is said of it differs
    witness = Witness()
    train(alone, tmp_path / "alone", witness)
    assert read_evidence(RunFolder(tmp_path / "alone").probe.evidence).target_ground_MG is None
    assert any("Second view: one pass over both domains" in line for line in witness.said)
    ends = [
        load_file(tmp_path / run / "checkpoints" / "step-00000002" / "tensors.safetensors") for run in ("both", "alone")
    ]
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
