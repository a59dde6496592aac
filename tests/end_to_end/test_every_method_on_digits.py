"""Each method goes from printed to handwritten digits in small."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from few_digits import configure, some
from pmtrans.data.demo.digits import DIGITS
from pmtrans.methods import METHODS
from pmtrans.progress import Reporter
from pmtrans.run.metrics import read_metrics
from pmtrans.training.train import train

COLLAPSES = {"fixbi"}  # on so few images (docs/results.md): then the run must say so, and ship another model
SOURCE_FREE = {"shot", "source_free"}  # sees no source image any more
# a discrepancy of weight 10, that of Office-31, in twenty steps on digits: measured 0.65; CDTrans 0.77
FORGETS = {"mcd": 0.5, "cdtrans": 0.6}
LOSES = {"mcd", "swd", "dwl", "cgdm"}  # in twenty steps classifiers that disagree only begin to pull features back


SETTINGS = {"train.batch_size": 32, "train.max_steps": 20}


@pytest.fixture(scope="module")
def source_only(digits: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run whose probe and source stage every method starts from."""
    folder = tmp_path_factory.mktemp("source-only")
    source, target = (some(domain, dict.fromkeys(DIGITS, 20), folder / domain.name) for domain in digits)
    train(configure("source_only", source, target, **SETTINGS), folder / "run", Reporter(quiet=True))
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_to_its_end_and_does_not_forget_the_source(
    method: str, source_only: Path, tmp_path: Path
) -> None:
    """Twenty steps are too few to ask for a gain on the target; docs/results.md has the table of whole trainings.

    Measured: 95 to 100 % of the held-out source, 72 to 78 % by SHOT, source-free and CDTrans and 65 % by MCD, where the
    source stage has 97 %; on the target 50 to 68 %, where the source-only model has 59 %, and 32 to 54 % by ``LOSES``.
    """
    config = configure(method, source_only / "source", source_only / "target", **SETTINGS)
    summary = train(config, tmp_path / "run", Reporter(quiet=True), start_from=source_only / "run")
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert all(math.isfinite(line["loss"]) for line in lines if "loss" in line)
    assert lines[-1]["step"] == 20
    if method in COLLAPSES:
        assert summary.verdict == "hurt"
        assert summary.shipped != "adapted"
        return
    assert lines[-1]["score.source_accuracy"] > (0.6 if method in SOURCE_FREE else FORGETS.get(method, 0.8))
    assert summary.source_only is not None
    assert summary.source_only > 0.45, "what it starts from"
    if method in LOSES:
        assert lines[-1]["oracle_accuracy"] > 0.25, "two and a half times as often right as by chance"
        assert summary.verdict != "helped"
    else:
        assert lines[-1]["oracle_accuracy"] > summary.source_only - 0.13, (
            "two standard errors more than the 9.5 points that CKB loses"
        )
