"""Which trainings fit into a time, from costs that are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from pmtrans.automatic.budget import Clock, TimedReporter, parse_time
from pmtrans.automatic.plan import Cost, Length, longest, plan_length
from pmtrans.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"), [("1h", 3600), ("20m", 1200), ("1h30m", 5400), ("1.5h", 5400), ("90s", 90), (" 2D ", 172800)]
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "20", "an hour", "1h 20", "-5m", "0s", "1hh", "h"])
def test_what_is_no_duration_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match="write it as 1h, 20m or 1h30m"):
        parse_time(text)


def test_a_training_keeps_its_full_length_where_it_fits() -> None:
    length = Length(200, 50)  # 4 evaluations
    source, method = Cost(1.0, 5.0), Cost(2.0, 5.0)  # 220 and 420 seconds
    assert plan_length(length, 640 / 0.8, source, method) == (length, True)


def test_a_shortened_training_is_the_longest_that_fits_with_four_evaluations() -> None:
    length, cost = Length(1000, 10), Cost(1.0, 5.0)
    short = longest(length, 500.0, cost)
    assert short is not None
    assert (short.steps, short.evaluations) == (480, 4)  # 480 x 1 + 4 x 5 = 500
    shared, fits = plan_length(length, 1000.0, cost, Cost(2.0, 5.0))
    assert fits
    assert shared is not None
    assert shared.steps == 220  # 0.7 x 1000 = 220 x (1 + 2) + 2 x 4 x 5


def test_a_time_for_the_source_stage_alone_and_a_time_for_no_training() -> None:
    length, source, method = Length(1000, 100), Cost(1.0, 0.0), Cost(9.0, 0.0)
    alone, fits = plan_length(length, 100.0, source, method)
    assert (alone, fits) == (Length(85, 22), False)
    assert plan_length(length, 40.0, source, method) == (None, False)  # 34 steps are no training
    assert plan_length(Length(6, 2), 9.0, source, method) == (Length(6, 2), False)  # its own settings ask for no more


def test_time_counts_over_sessions_and_ends_a_training_before_it_is_over(tmp_path: Path) -> None:
    (tmp_path / "clock.json").write_text('{"spent": 50.0}')
    clock = Clock(tmp_path / "clock.json", 100.0)
    assert clock.spent == pytest.approx(50.0, abs=5)
    clock.tick()
    clock.save()
    reporter = TimedReporter(clock, quiet=True)
    assert not reporter.has_had_enough()
    reporter.reserve = 60.0  # 50 are left
    assert reporter.has_had_enough()
    (tmp_path / "clock.json").write_text("{")  # half a file counts as none
    assert Clock(tmp_path / "clock.json", 10.0).left == pytest.approx(10.0, abs=5)
