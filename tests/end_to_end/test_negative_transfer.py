"""Runs made to fail: a label shift so strong that adaptation hurts, and the run must say so by itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pmtrans.backbones.digits_vit import weights_path
from pmtrans.config import load_config
from pmtrans.data.digits import DIGITS, write_digits
from pmtrans.demo import SETTINGS
from pmtrans.training.progress import Reporter
from pmtrans.training.train import train

SHORT = {  # the demo in small; one evaluation, as to choose an early one is to avoid the worst of the harm
    **SETTINGS,
    "seed": 0,
    "backbone.weights": str(weights_path()),
    "data.holdout": 0.3,
    "train.batch_size": 16,
    "train.max_steps": 40,
    "train.evaluate_every": 40,
    "selection.game": False,
}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_digits(tmp_path_factory.mktemp("digits") / "data")


def some(domain: Path, images: dict[str, int], out: Path) -> str:
    """So many images of each digit."""
    for digit, count in images.items():
        (out / digit).mkdir(parents=True)
        for path in sorted((domain / digit).iterdir())[:count]:
            shutil.copy(path, out / digit)
    return str(out)


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (dict.fromkeys(DIGITS, 3) | {"3": 150}, {"hurt"}),  # a game that spreads one digit over ten
        (dict.fromkeys(DIGITS, 18), {"helped", "unchanged"}),
    ],
    ids=["one digit has nearly all images", "all digits have as many"],
)
def test_the_verdict_of_a_real_training_is_that_of_the_target_labels(
    images: dict[str, int], expected: set[str], digits: tuple[Path, Path], tmp_path: Path
) -> None:
    source, target = digits
    domains = {
        "data.source": some(source, dict.fromkeys(DIGITS, 20), tmp_path / "source"),
        "data.target": some(target, images, tmp_path / "target"),
    }
    train(load_config(None, [], {**SHORT, **domains}), tmp_path / "run", Reporter(quiet=True))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    gain = summary["adapted"] - summary["source_only"]
    assert gain < -0.1 if expected == {"hurt"} else gain > -0.05, "what happened in truth"
    assert summary["verdict"] in expected, summary["verdict_reason"]
    assert summary["verdict_reason"]
