from __future__ import annotations

import json
from pathlib import Path

import pytest

from pmtrans.run.metrics import MetricsLog, read_metrics


def test_a_continued_log_keeps_what_was_done_and_drops_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    whole = "".join(json.dumps({"step": step, "loss": 0.1 * step}) + "\n" for step in range(1, 6))
    path.write_text(whole + '{"step": 6, "lo')
    log = MetricsLog(path, last_step=3)
    log.write(4, {"loss": float("nan")})
    log.close()
    assert path.read_text() == "".join(whole.splitlines(keepends=True)[:3]) + '{"step": 4, "loss": null}\n'


def test_half_a_line_is_passed_over_by_readers(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2, "name": "\xc3')
    assert read_metrics(path) == [{"step": 1}]


def test_a_new_log_begins_empty(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    MetricsLog(tmp_path / "metrics.jsonl").close()
    assert (tmp_path / "metrics.jsonl").read_text() == ""


@pytest.mark.parametrize(
    "forged",
    ['"x"', "[]", "{}", "true", "NaN", "1e400", "1e300", "9" * 400, '"<script>"', "[[1]]", "-1", "0"],
)
def test_what_no_run_has_written_is_passed_over(tmp_path: Path, forged: str) -> None:
    path = tmp_path / "metrics.jsonl"
    damaged = f'{{"step": 1, "beta_b": {forged}}}\n{{"step": 1, "beta_g": {forged}, "beta_b": 1}}\n'
    path.write_text(damaged + '{"step": 2, "epoch": 1}\n')
    assert read_metrics(path) == [{"step": 2, "epoch": 1}]
