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
FORGETS = {"mcd": 0.5}  # a discrepancy of weight 10, that of Office-31, in thirty steps on digits: measured 0.58
LOSES = {"mcd", "swd", "dwl", "cgdm"}  # in thirty steps classifiers that disagree only begin to pull features back


@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_to_its_end_and_does_not_forget_the_source(
    method: str, digits: tuple[Path, Path], tmp_path: Path
) -> None:
    """Thirty steps are too few to ask for a gain on the target; docs/results.md has the table of whole trainings.

    Measured: 88 % (CDTrans) to 100 % of the held-out source, 72 % by SHOT and 58 % by MCD, where the source stage has
    98 %; on the target 49 to 67 %, where the source-only model has 54 %, and 32 to 47 % by those in ``LOSES``.
    """
    source, target = (some(domain, dict.fromkeys(DIGITS, 20), tmp_path / domain.name) for domain in digits)
    changes: dict[str, object] = {"train.baseline": False, "train.batch_size": 32, "train.max_steps": 30}
    summary = train(configure(method, source, target, **changes), tmp_path / "run", Reporter(quiet=True))
    lines = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert all(math.isfinite(line["loss"]) for line in lines if "loss" in line)
    assert lines[-1]["step"] == 30
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
        assert lines[-1]["oracle_accuracy"] > summary.source_only - 0.08
