"""Losses for targets with other classes than the source, against plain loops."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from pmtrans.losses import classification_loss
from pmtrans.losses.information_maximisation import information_maximisation_loss, weighted_information_loss
from pmtrans.losses.unknown_separation import unknown_separation_loss


def plain_entropy(p: list[float]) -> float:
    return -sum(value * math.log(value) for value in p if value > 0)


def test_a_weighted_cross_entropy_is_the_mean_of_weighted_images() -> None:
    torch.manual_seed(0)
    logits, labels, weights = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 0]), [2.0, 0.0, 1.0, 0.5, 1.5]
    rows = logits.log_softmax(1).tolist()
    losses = [-(0.9 * row[y] + 0.1 * sum(row) / 3) for row, y in zip(rows, labels.tolist(), strict=True)]
    expected = sum(w * loss for w, loss in zip(weights, losses, strict=True)) / 5
    assert classification_loss(logits, labels, 0.1, torch.tensor(weights)).item() == pytest.approx(expected)
    ones = classification_loss(logits, labels, 0.1, torch.ones(5))
    assert ones.item() == pytest.approx(F.cross_entropy(logits, labels, label_smoothing=0.1).item())


def test_weighted_information_asks_for_no_absent_class() -> None:
    torch.manual_seed(1)
    logits, weights, present = torch.randn(4, 3), [1.0, 0.0, 2.0, 1.0], [True, False, True]
    rows = logits.softmax(1).tolist()
    share = [weight / 4 for weight in weights]
    mean = [sum(s * row[k] for s, row in zip(share, rows, strict=True)) * present[k] for k in range(3)]
    diversity = plain_entropy([value / sum(mean) for value in mean])
    certainty = sum(s * plain_entropy(row) for s, row in zip(share, rows, strict=True))
    found = weighted_information_loss(logits, torch.tensor(weights), torch.tensor(present))
    assert found.item() == pytest.approx(certainty - diversity, rel=1e-5)


def test_with_equal_weights_and_all_classes_it_is_information_maximisation() -> None:
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))
    found = weighted_information_loss(logits, torch.ones(6), torch.ones(4, dtype=torch.bool))
    assert found.item() == pytest.approx(information_maximisation_loss(logits).item(), rel=1e-5)


def test_a_batch_of_unknown_images_alone_moves_nothing() -> None:
    logits = torch.randn(3, 4, requires_grad=True)
    loss = weighted_information_loss(logits, torch.zeros(3), torch.ones(4, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert logits.grad.abs().max() == 0


def test_separation_is_the_certainty_of_unknown_images() -> None:
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(3))
    rows = logits.softmax(1).tolist()
    expected = sum(math.log(3) - plain_entropy(rows[place]) for place in (0, 2)) / 2
    unknown = torch.tensor([True, False, True, False])
    assert unknown_separation_loss(logits, unknown).item() == pytest.approx(expected, rel=1e-5)
    assert unknown_separation_loss(logits, torch.zeros(4, dtype=torch.bool)).item() == 0
    assert unknown_separation_loss(torch.zeros(2, 5), torch.ones(2)).item() == pytest.approx(0, abs=1e-6)
