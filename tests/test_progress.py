"""What a person sees in a pipe: a line a minute, with the time of day and the time that the run will still take."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from pmtrans import progress
from pmtrans.progress import Reporter


class Time:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def strftime(self, form: str) -> str:
        return "12:34:56"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def lines(reporter: Reporter, clock: Time, capsys: pytest.CaptureFixture[str]) -> list[str]:
    for step in range(1, 101):
        clock.now += 10  # seconds a step
        reporter.values(step, {"loss": 0.5, "images_per_second": 7.0})
    return capsys.readouterr().err.splitlines()


def test_a_line_a_minute_tells_the_time_left_over_all_trainings(
    clock: Time, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = Reporter()
    reporter.expect(1)
    reporter.start("source only", 0, 100)
    first = lines(reporter, clock, capsys)
    assert first[0] == "12:34:56  source only  step 1/100  loss 0.500  7 img/s  about 33 min left for the run"
    steps = [int(re.findall(r"step (\d+)/", line)[0]) for line in first]
    assert steps == [*range(1, 100, 6), 100]  # 6 steps a minute, and the last
    assert first[-1].endswith("about 17 min left for the run")  # 100 steps of 10 s are to come

    reporter.expect(3)  # the method costs three times as much as the source stage
    reporter.start("source only", 0, 100)
    reporter._began, clock.now = clock.now, clock.now + 500
    assert reporter.time_left(50) == "about 58 min left for the run"  # 50 steps of 10 s and 100 of 30 s

    reporter.start("pmtrans", 40, 100)  # resumed
    for step, said in ((41, "about 10 min left"), (100, "about 0 s left")):
        clock.now = 5000.0 + 10 * (step - 40)
        reporter._began = 5000.0
        assert reporter.time_left(step) == said


def test_what_the_first_step_waited_for_is_no_part_of_the_pace(clock: Time) -> None:
    reporter = Reporter(quiet=True)
    reporter.start("pmtrans", 0, 100)
    clock.now += 500  # passes over the domains
    reporter.step(1, 7.0)
    assert reporter.time_left(1) == ""
    clock.now += 10
    reporter.step(2, 7.0)
    assert reporter.time_left(2) == "about 16 min left"  # 98 steps of 10 s


def test_work_in_parts_says_a_line_a_minute_in_a_pipe_and_nothing_if_it_is_short(
    clock: Time, capsys: pytest.CaptureFixture[str]
) -> None:
    with Reporter().counted("report", 10) as finished_one:
        for _ in range(10):
            clock.now += 25  # lines after 75, 150 and 225 seconds
            finished_one()
    assert capsys.readouterr().err.splitlines() == [
        "12:34:56  report  3/10  about 3 min left",  # 7 x 25 s
        "12:34:56  report  6/10  about 2 min left",
        "12:34:56  report  9/10  about 25 s left",
    ]
    with Reporter().counted("report", 2) as finished_one:
        clock.now += 59
        finished_one()
    with Reporter(quiet=True).counted("report", 2) as finished_one:
        clock.now += 590
        finished_one()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("width", [80, 120, 130])
def test_nothing_of_the_bar_is_cut(width: int) -> None:
    reporter = Reporter()
    reporter.console = Console(file=io.StringIO(), width=width, force_terminal=True)
    reporter.live = True
    reporter.expect(1)
    reporter.start("source only, continued", 0, 12_000)
    reporter.step(11_000, 36.4)
    reporter._first_step, reporter._began = 0, time.monotonic() - 3600
    reporter.values(11_000, {"loss": 1.2345, "cross_entropy": 4.5, "beta_b": 1.0, "beta_g": 1.0})
    reporter.stop()
    shown = reporter.console.file.getvalue()  # type: ignore[attr-defined]
    assert "loss 1.234" in shown
    assert "run 71 min" in shown
    assert "\u2026" not in shown
