"""PMTrans gains on a target: from printed to handwritten digits of four classes, in seconds."""

from __future__ import annotations

from pathlib import Path

from few_digits import configure, some
from pmtrans.progress import Reporter
from pmtrans.training.train import train
from recounted import adapted_model, recount


def test_pmtrans_is_more_often_right_on_the_target_than_the_probe_and_the_source_only_model(
    digits: tuple[Path, Path], tmp_path: Path
) -> None:
    """Measured: probe 71 %, source-only 80 %, PMTrans 98 % of 120 images; sixty steps of sixteen pairs each, one seed.

    The digits were chosen as ones that so short a training can adapt to; on 1, 4, 7 and 9 the same settings lose (from
    61 to 50 %). It shows that the method can gain, not that it always does.
    """
    source = some(digits[0], dict.fromkeys("2357", 25), tmp_path / "source")
    target = some(digits[1], dict.fromkeys("2357", 30), tmp_path / "target")
    changes: dict[str, object] = {"train.max_steps": 60, "train.evaluate_every": 60}
    train(configure("pmtrans", source, target, **changes), tmp_path / "run", Reporter(quiet=True))
    run = tmp_path / "run"
    probe, source_only, adapted = (
        recount(model, target)[0] for model in (run / "probe" / "model", run / "baseline" / "model", adapted_model(run))
    )
    assert adapted >= max(probe, source_only) + 0.08
    assert adapted >= 0.9
