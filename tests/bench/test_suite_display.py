"""What a person sees: a table on a terminal, lines in a pipe."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from pmtrans import progress as progress_module
from pmtrans.bench import display as display_module
from pmtrans.bench.display import Display, RunReporter
from pmtrans.bench.entry import SharedSettings, parse_entries
from pmtrans.bench.execute import Outcome
from pmtrans.bench.jobs import Suite, plan_suite
from pmtrans.bench.results import Result
from tiny_office_home import FLAGS, SETTINGS, write_office_home


@pytest.fixture
def plan(tmp_path: Path) -> Suite:
    data = write_office_home(tmp_path / "data", per_class=1)
    entries = parse_entries("source_only,pmtrans:reference")
    settings = SharedSettings(None, SETTINGS, FLAGS)
    plan = plan_suite("office-home", data, tmp_path / "out", entries, [0], settings, ["A2C", "A2P"])
    return replace(plan, problems=())  # as for a complete copy


class Minutes:
    """A clock that a test turns."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def strftime(self, form: str) -> str:
        return "12:34:56"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Minutes:
    clock = Minutes()
    monkeypatch.setattr(display_module, "time", clock)
    monkeypatch.setattr(progress_module, "time", clock)
    return clock


def shown(plan: Suite, terminal: bool, clock: Minutes) -> str:
    display = Display()
    text = io.StringIO()
    display.console = Console(file=text, force_terminal=terminal, width=100, color_system=None, highlight=False)
    first, second, third, _ = plan.jobs
    result = Result("office-home", first.task, first.method, "vit", 0, 0.625, 0.5, 0.75, 0.5, 61.0)
    display.begin(plan, [], 0)
    display.started(first)
    reporter = RunReporter(display, first, every=0.0)
    reporter.start("source only", 0, 12)
    clock.now += 70.0  # 7 of 12 steps
    reporter.values(7, {"images_per_second": 30.0})
    reporter.warn("a class is dying")
    clock.now += 50.0
    display.ended(first, Outcome("done"), [result])
    display.started(second)
    display.ended(second, Outcome("failed", "the disk is full"), [result])
    display.started(third)
    display.tick()
    clock.now += 60.0
    display.tick()
    display.end()
    return text.getvalue()


def test_a_pipe_gets_plain_lines(plan: Suite, clock: Minutes) -> None:
    assert shown(plan, False, clock).splitlines() == [
        "office-home: 4 runs (2 tasks), 0 done already",
        "[1/4] A2C source_only seed 0",
        "12:34:56  A2C source_only seed 0: source only, step 7/12, 30 img/s, about 50 s left",
        "A2C source_only seed 0: warning: a class is dying",
        "A2C source_only seed 0: label-free 62.5, last 50.0, oracle 75.0 (61 s)",
        "[2/4] A2C pmtrans:reference seed 0",
        "A2C pmtrans:reference seed 0: failed: the disk is full",
        "[3/4] A2P source_only seed 0",
        "12:34:56  2 of 4 runs done, about 3 min left for all 4 runs",  # two runs in 180 s
    ]


def test_a_terminal_gets_a_table_that_fills_up(plan: Suite, clock: Minutes) -> None:
    last = shown(plan, True, clock).split("office-home, label-free accuracy")[-1]
    rows = {
        line.split("│")[1].strip(): [cell.strip() for cell in line.split("│")[2:4]]
        for line in last.splitlines()
        if "│" in line
    }
    assert rows == {"source_only": ["62.5", "..."], "pmtrans:reference": ["failed", "."]}
    assert "2 of 4 runs done" in last
