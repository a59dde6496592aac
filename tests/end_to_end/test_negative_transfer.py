"""Runs made to fail: a label shift so strong that adaptation hurts, and the run must say so by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from few_digits import configure, some
from pmtrans.data.demo.digits import DIGITS
from pmtrans.progress import Reporter
from pmtrans.training.train import train


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (dict.fromkeys(DIGITS, 3) | {"3": 150}, {"hurt"}),  # a game that spreads one digit over ten
        (dict.fromkeys(DIGITS, 18), {"helped", "unchanged", "cannot tell"}),  # 180 images: too few for a small gain
    ],
    ids=["one digit has nearly all images", "all digits have as many"],
)
def test_the_verdict_of_a_real_training_is_that_of_the_target_labels(
    images: dict[str, int], expected: set[str], digits: tuple[Path, Path], tmp_path: Path
) -> None:
    source, target = digits
    few_source = some(source, dict.fromkeys(DIGITS, 20), tmp_path / "source")
    few_target = some(target, images, tmp_path / "target")
    gentle = {"train.learning_rate": 5e-4, "train.batch_size": 24}
    train(configure("pmtrans", few_source, few_target, **gentle), tmp_path / "run", Reporter(quiet=True))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    gain = summary["adapted"] - summary[summary["compared_with"]]
    assert gain < -0.1 if expected == {"hurt"} else gain > -0.05, "what happened in truth"
    assert summary["verdict"] in expected, summary["verdict_reason"]
    assert summary["verdict_reason"]
