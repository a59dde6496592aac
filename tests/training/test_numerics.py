"""``train.compile`` and ``train.precision=bf16`` through a whole run on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch._inductor import config as inductor

from pmtrans.config import Config
from pmtrans.errors import ConfigError
from pmtrans.progress import Reporter
from pmtrans.run.metrics import read_metrics
from pmtrans.training.train import train
from recounted import recount

SHORT: dict[str, Any] = {"train__max_steps": 2, "train__evaluate_every": 2, "train__clip": 0.0}


@pytest.fixture
def losses(configure: Callable[..., Config], tmp_path: Path, images: Path) -> Callable[..., list[float]]:
    """The losses of a short run, which must end with a model in float32 that is as right as the summary says."""

    def of(name: str, **changes: Any) -> list[float]:
        summary = train(configure(**SHORT, **changes), tmp_path / name, Reporter(quiet=True))
        weights = safetensors.torch.load_file(tmp_path / name / "model" / "model.safetensors")
        assert all(value.dtype == torch.float32 and value.isfinite().all() for value in weights.values())
        assert summary.adapted == pytest.approx(recount(tmp_path / name / "model", images / "target")[0], abs=0.1001)
        found = [line["loss"] for line in read_metrics(tmp_path / name / "metrics.jsonl") if "loss" in line]
        assert len(found) == 2
        assert all(map(math.isfinite, found))
        return found

    return of


def test_a_compiled_run_has_the_losses_of_one_that_is_not(losses: Callable[..., list[float]]) -> None:
    """A method without random numbers in its forward pass: a compiler draws others."""
    assert losses("compiled", train__compile=True, method__name="bnm") == pytest.approx(
        losses("plain", method__name="bnm"), rel=1e-4
    )


def test_a_run_in_bf16_has_nearly_the_losses_of_one_in_fp32(losses: Callable[..., list[float]]) -> None:
    half, full = losses("half", train__precision="bf16"), losses("full", train__precision="fp32")
    assert half == pytest.approx(full, rel=0.02)
    assert half != full  # the passes did run in eight bits of mantissa


def test_without_a_compiler_nothing_is_begun(configure: Callable[..., Config], tmp_path: Path) -> None:
    with inductor.patch({"cpp.cxx": ("/nowhere/g++",)}), pytest.raises(ConfigError, match="needs a C\\+\\+ compiler"):
        train(configure(train__compile=True), tmp_path / "run", Reporter(quiet=True))
    assert not (tmp_path / "run").exists()
