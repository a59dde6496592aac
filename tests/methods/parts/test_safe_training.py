from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
import torch
from torch import nn

from pmtrans.methods.method import Moment
from pmtrans.methods.parts.safe_training import SafeTraining


def predicting(classes: int) -> torch.Tensor:
    """Logits of eight images of which ``classes`` different classes are predicted."""
    return torch.eye(8)[torch.arange(8) % classes]


def enter(safe: SafeTraining, record: list[int], period: int, first: int = 0) -> None:
    for place, diversity in enumerate(record):
        found = safe.record(predicting(diversity), Moment(first + place, 1000, 10), period)
        assert float(found) == diversity


def brute_force(previous: list[int], present: list[int], tolerance: float) -> bool:
    """The record of the paper, split into 1, 2, ... 16 parts, the last part of the period before put in front."""
    for level in range(5):
        parts = [list(part) for part in np.array_split(present, 2**level)]
        if previous:
            parts = [list(np.array_split(previous, 2**level)[-1]), *parts]
        means = [sum(part) / len(part) for part in parts]
        if any(before - after > tolerance for before, after in itertools.pairwise(means)):
            return True
    return False


def test_a_drop_is_found_at_any_level_as_in_the_paper() -> None:
    drawn = random.Random(0)
    verdicts = []
    for _ in range(20):
        top = drawn.randint(4, 8)
        previous, present = ([drawn.randint(top - 1, top) for _ in range(32)] for _ in range(2))
        if drawn.random() < 0.5:
            begin = drawn.randint(0, 31)
            present[begin:] = [value - drawn.randint(0, 2) for value in present[begin:]]
        safe = SafeTraining([], smallest_part=1)
        enter(safe, previous, 32)
        assert bool(safe.dropped(32)) == brute_force([], previous, 1.0)
        safe.watch(Moment(32, 1000, 10), 32, [])
        enter(safe, present, 32, first=32)
        verdicts.append(bool(safe.dropped(32)))
        assert verdicts[-1] == brute_force(previous, present, 1.0)
    assert len(set(verdicts)) == 2


def test_a_period_shorter_than_its_parts_is_no_drop_by_itself() -> None:
    safe = SafeTraining([])
    enter(safe, [5, 5, 5], 3)
    assert not bool(safe.dropped(3))


def test_parts_too_short_for_a_mean_are_not_compared() -> None:
    """Two steps of eight classes, then five: by halves and quarters a drop, and nothing but chance in so few steps."""
    looking, patient = SafeTraining([], smallest_part=1), SafeTraining([])
    for safe in (looking, patient):
        enter(safe, [8] * 2 + [5] * 30, 32)
    assert bool(looking.dropped(32))
    assert not bool(patient.dropped(32))
    enter(patient, [8] * 62 + [5] * 62, 124, first=124)
    assert bool(patient.dropped(124))


def test_strength_rises_as_a_sine_and_stays_at_one() -> None:
    safe = SafeTraining([])
    for step, expected in [(0, 0), (5, math.sin(math.pi / 4)), (10, 1), (99, 1)]:
        assert float(safe.strength(Moment(step, 100, 10), 10)) == pytest.approx(expected)


def test_a_restore_brings_the_last_good_weights_back_and_starts_again() -> None:
    layer = nn.Linear(2, 2)
    safe = SafeTraining([layer], smallest_part=1)
    safe.snapshot.requires_grad_(False)

    def at(step: int) -> bool:
        return safe.watch(Moment(step, 100, 10), 8, [layer])

    with torch.no_grad():
        layer.weight.fill_(1.0)
    enter(safe, [6] * 8, 8)
    assert not at(8)  # all well: these weights are kept
    with torch.no_grad():
        layer.weight.fill_(2.0)  # the kept ones must not follow
    enter(safe, [3] * 8, 8, first=8)
    assert not at(12)  # not the end of a period
    assert at(16)
    assert layer.weight.unique().tolist() == [1.0]
    assert layer.weight.requires_grad
    assert (int(safe.begin), int(safe.stretch), int(safe.restores)) == (16, 1, 1)
    assert float(safe.strength(Moment(16, 100, 10), 8)) == 0


def test_restores_that_follow_within_t_r_double_it() -> None:
    """Restores come at ends of periods only: the next one is exactly T_r = 1 period later."""
    layer = nn.Linear(2, 2)
    safe = SafeTraining([layer], smallest_part=1)
    course = []
    for number, diversity in enumerate([6, 1, 1, 6, 1, 6, 6, 6, 6, 6, 1]):
        enter(safe, [diversity] * 8, 8, first=8 * number)
        restored = safe.watch(Moment(8 * number + 8, 100, 10), 8, [layer])
        course.append((restored, int(safe.stretch)))
    assert course[:5] == [(False, 1), (True, 1), (True, 2), (False, 2), (True, 4)]
    assert course[5:] == [(False, 4)] * 5 + [(True, 4)]  # six periods after the last one


def test_after_a_restore_the_last_good_period_stays_the_reference() -> None:
    """6 classes, then 3 (restored), then 3 again: measured against the 3 that was undone, that would be no drop."""
    layer = nn.Linear(2, 2)
    safe = SafeTraining([layer], smallest_part=1)
    verdicts = []
    for number, diversity in enumerate([6, 3, 3, 6, 6]):
        enter(safe, [diversity] * 8, 8, first=8 * number)
        verdicts.append(safe.watch(Moment(8 * number + 8, 100, 10), 8, [layer]))
    assert verdicts == [False, True, True, False, False]


def test_no_restore_while_the_refinement_is_too_weak_to_be_the_cause() -> None:
    layer = nn.Linear(2, 2)
    safe = SafeTraining([layer], smallest_part=1)
    safe.stretch.fill_(100)
    enter(safe, [6, 6, 6, 6, 1, 1, 1, 1], 8)
    assert bool(safe.dropped(8))
    assert not safe.watch(Moment(8, 1000, 10), 8, [layer])


def test_all_of_it_is_in_a_checkpoint() -> None:
    layer = nn.Linear(2, 2)
    one, other = SafeTraining([layer], smallest_part=1), SafeTraining([nn.Linear(2, 2)])
    enter(one, [6, 6, 6, 2], 4)
    one.watch(Moment(4, 100, 10), 4, [layer])
    other.load_state_dict(one.state_dict())
    assert torch.equal(other.sums_2P, one.sums_2P)
    assert int(other.restores) == 1
    assert torch.equal(other.snapshot[0].weight, layer.weight)  # type: ignore[arg-type]
