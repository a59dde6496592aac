"""The losses of the first steps, beside those that were committed: a refactoring that changes numbers is seen at once.

A change that is meant to change them writes them again and says why in its commit message:

    PMTRANS_WRITE_TRAJECTORIES=1 .venv/bin/python -m pytest tests/invariant
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pmtrans.progress import Reporter
from pmtrans.run.metrics import read_metrics
from pmtrans.settings import load_config
from pmtrans.training.train import train
from tiny_data import TINY

COMMITTED = Path(__file__).parent / "trajectories.json"
METHODS = ("pmtrans", "cdan", "mcd")  # a game of mixing, a discriminator, a step of several phases
FAMILIES = ("vit", "swin")  # with a class token, and pooled
LOSSES = ("loss", "classification", "cross_entropy", "gradient_norm")
SETTINGS = {
    "data.workers": 0,
    "train.batch_size": 4,
    "train.max_steps": 5,
    "train.epochs": 9,
    "train.log_every": 1,
    "train.baseline": False,
    "train.start": "pretrained",
    "selection.game": False,
}


@pytest.fixture
def trajectory(two_domains: tuple[Path, Path], tmp_path: Path) -> Callable[[str, str], list[dict[str, float]]]:
    """Losses and gradient norm of each step of a short training, and the scores of its one evaluation."""

    def run(method: str, family: str) -> list[dict[str, float]]:
        name, options, size = TINY[family]
        flags: dict[str, Any] = {
            **SETTINGS,
            "data.source": str(two_domains[0]),
            "data.target": str(two_domains[1]),
            "data.image_size": size,
            "backbone.name": name,
            "backbone.weights": "none",
            "backbone.options": options,
            "method.name": method,
        }
        train(load_config(None, [], flags), tmp_path / "run", Reporter(quiet=True))
        return [
            {key: value for key, value in line.items() if key in LOSSES or key.startswith("score.")}
            for line in read_metrics(tmp_path / "run" / "metrics.jsonl")
        ]

    return run


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", METHODS)
def test_first_steps_have_the_committed_losses(
    method: str, family: str, trajectory: Callable[[str, str], list[dict[str, float]]]
) -> None:
    now = trajectory(method, family)
    committed = json.loads(COMMITTED.read_text()) if COMMITTED.is_file() else {}
    if os.environ.get("PMTRANS_WRITE_TRAJECTORIES"):
        COMMITTED.write_text(json.dumps({**committed, f"{method}/{family}": now}, indent=1, sort_keys=True) + "\n")
        return
    expected = committed[f"{method}/{family}"]
    assert len(now) == len(expected) >= 6  # five steps and an evaluation
    for line, before in zip(now, expected, strict=True):
        assert line == pytest.approx(before, rel=2e-4, abs=1e-6, nan_ok=True)
