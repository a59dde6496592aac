"""The losses of FixBi against plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pmtrans.losses.bidirectional_matching import bidirectional_matching
from pmtrans.losses.consistency import consistency_loss
from pmtrans.losses.fixed_ratio_mixup import fixed_ratio_mixup
from pmtrans.losses.self_penalisation import self_penalisation

ONE = [[2.0, -1.0, 0.5], [0.1, 0.2, -0.3], [-2.0, 1.5, 1.0], [0.0, 3.0, -1.0]]
OTHER = [[0.5, 0.5, 0.0], [1.0, -1.0, 2.0], [0.3, 0.1, 0.2], [-1.0, 0.0, 1.0]]
LABELS, PSEUDO, SURE = [0, 2, 1, 1], [0, 1, 1, 2], [True, False, True, False]


def softmax(row: list[float], temperature: float = 1.0) -> list[float]:
    powers = [math.exp(value / temperature) for value in row]
    return [power / sum(powers) for power in powers]


def tensors(*values: object) -> list[Tensor]:
    return [torch.tensor(value) for value in values]


def test_a_mixture_is_of_both_labels_by_its_ratio() -> None:
    expected = 0.0
    for row, label, pseudo_label in zip(ONE, LABELS, PSEUDO, strict=True):
        p = softmax(row)
        expected -= (0.7 * math.log(p[label]) + 0.3 * math.log(p[pseudo_label])) / 4
    mixed, labels, pseudo_labels = tensors(ONE, LABELS, PSEUDO)
    assert float(fixed_ratio_mixup(mixed, labels, pseudo_labels, 0.7)) == pytest.approx(expected, rel=1e-5)


def test_doubted_labels_are_pushed_away_and_no_others() -> None:
    doubted = [row for row, sure in enumerate(SURE) if not sure]
    expected = sum(-math.log(1 - softmax(ONE[row], 5.0)[PSEUDO[row]]) for row in doubted) / len(doubted)
    logits, labels, sure, temperature = tensors(ONE, PSEUDO, SURE, 5.0)
    assert float(self_penalisation(logits, labels, ~sure, temperature)) == pytest.approx(expected, rel=1e-5)
    assert float(self_penalisation(logits, labels, sure & ~sure, temperature)) == 0.0


def test_a_student_takes_over_what_its_teacher_is_sure_of() -> None:
    taught = [row for row, sure in enumerate(SURE) if sure]
    expected = sum(-math.log(softmax(ONE[row])[PSEUDO[row]]) for row in taught) / len(taught)
    student, labels, sure = tensors(ONE, PSEUDO, SURE)
    assert float(bidirectional_matching(student, labels, sure)) == pytest.approx(expected, rel=1e-5)
    assert float(bidirectional_matching(student, labels, sure & ~sure)) == 0.0


def test_two_networks_agree_by_the_squared_distance_of_their_predictions() -> None:
    expected = 0.0
    for row, other in zip(ONE, OTHER, strict=True):
        expected += sum((p - q) ** 2 for p, q in zip(softmax(row), softmax(other), strict=True)) / 4
    assert float(consistency_loss(*tensors(ONE, OTHER))) == pytest.approx(expected, rel=1e-5)
    assert float(consistency_loss(*tensors(ONE, ONE))) == 0.0
