from __future__ import annotations

import math

import pytest
import torch

from pmtrans.selection.disagreement_discrepancy import accuracy_floor, disagreement_loss, discrepancy
from simulation import EVEN, simulate


def test_the_disagreement_loss_is_that_of_the_paper() -> None:
    logits = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0]]).double()
    predicted = torch.tensor([0, 2])
    terms = []
    for row, y in zip(logits.tolist(), predicted.tolist(), strict=True):
        others = [value for k, value in enumerate(row) if k != y]
        terms.append(math.log(1 + math.exp(row[y] - sum(others) / len(others))) / math.log(2))
    assert disagreement_loss(logits, predicted).item() == pytest.approx(sum(terms) / 2)


def test_without_a_shift_no_critic_can_contradict_on_the_target_alone() -> None:
    world = simulate(EVEN, displacement=0.0, images=1200)
    assert abs(discrepancy(world.baseline.source_logits_NK, world.baseline.target_logits_MK)) < 0.05


@pytest.mark.parametrize("displacement", [0.0, 0.2, 0.4, 0.5])
def test_the_truth_is_above_the_floor(displacement: float) -> None:
    world = simulate(EVEN, displacement=displacement, images=1200)
    assert accuracy_floor(world.baseline, 0.05) <= world.accuracy(world.baseline)


def test_the_floor_says_something_where_the_domains_are_alike() -> None:
    world = simulate(EVEN, displacement=0.0, images=1200)
    chance = math.sqrt((150 + 4 * 600) * math.log(20) / (2 * 150 * 600))
    assert accuracy_floor(world.baseline, 0.05) == pytest.approx(1 - chance, abs=0.06)


def test_one_image_proves_nothing() -> None:
    assert accuracy_floor(simulate(EVEN, images=1).baseline, 0.05) == 0.0
