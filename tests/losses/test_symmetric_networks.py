"""SymNets: two classifiers under one softmax, in plain loops."""

from __future__ import annotations

import math

import pytest
import torch

from pmtrans.losses.category_confusion import category_confusion
from pmtrans.losses.domain_confusion import domain_confusion
from pmtrans.losses.domain_halves import domain_loss
from pmtrans.losses.symmetric_entropy import symmetric_entropy

CLASSES = 3


def outputs(images: int, seed: int) -> torch.Tensor:
    return 2 * torch.randn(images, 2 * CLASSES, generator=torch.Generator().manual_seed(seed))


def probabilities(logits: torch.Tensor) -> list[list[float]]:
    rows = []
    for row in logits.tolist():
        powers = [math.exp(value) for value in row]
        rows.append([power / sum(powers) for power in powers])
    return rows


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_source_images_belong_to_the_first_half_and_target_images_to_the_second() -> None:
    source, target = outputs(5, 0), outputs(4, 1)
    expected = mean([-math.log(sum(row[:CLASSES])) for row in probabilities(source)])
    expected += mean([-math.log(sum(row[CLASSES:])) for row in probabilities(target)])
    assert float(domain_loss(source, target)) == pytest.approx(expected, rel=1e-5)


def test_a_source_image_is_of_its_class_in_both_halves() -> None:
    source, labels = outputs(5, 2), [0, 2, 1, 1, 0]
    rows = probabilities(source)
    expected = mean(
        [-math.log(row[y]) / 2 - math.log(row[y + CLASSES]) / 2 for row, y in zip(rows, labels, strict=True)]
    )
    assert float(category_confusion(source, torch.tensor(labels))) == pytest.approx(expected, rel=1e-5)


def test_a_confused_target_image_belongs_to_both_halves() -> None:
    target = outputs(4, 3)
    expected = mean(
        [-math.log(sum(row[:CLASSES])) / 2 - math.log(sum(row[CLASSES:])) / 2 for row in probabilities(target)]
    )
    assert float(domain_confusion(target)) == pytest.approx(expected, rel=1e-5)


def test_the_entropy_is_of_classes_whose_halves_are_added_up() -> None:
    target = outputs(4, 4)
    each = []
    for row in probabilities(target):
        classes = [row[k] + row[k + CLASSES] for k in range(CLASSES)]
        each.append(-sum(p * math.log(p) for p in classes))
    assert float(symmetric_entropy(target)) == pytest.approx(mean(each), rel=1e-5)
