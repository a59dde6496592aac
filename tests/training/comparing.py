"""Two runs are the same: weights byte by byte, metrics line by line but for times."""

from __future__ import annotations

from pathlib import Path

from pmtrans.run.metrics import TIMES, read_metrics


def assert_same_run(one: Path, other: Path) -> None:
    name = Path("model") / "model.safetensors"
    assert (one / name).read_bytes() == (other / name).read_bytes()
    first, second = (
        [{key: value for key, value in line.items() if key not in TIMES} for line in read_metrics(run / "metrics.jsonl")]
        for run in (one, other)
    )
    assert first == second
    assert len(first) > 3
