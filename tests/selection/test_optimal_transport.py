"""Confidence optimal transport against every assignment there is."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

from pmtrans.selection.optimal_transport import MOST, quotas, transported_confidence


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_best_of_all_assignments_with_the_class_shares_of_the_source(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randn(6, 3, generator=generator).double().softmax(1)
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    best = max(
        sum(target[image, labels[place]].item() for image, place in enumerate(order)) / 6
        for order in permutations(range(6))
    )
    assert transported_confidence(target, labels) == pytest.approx(best)


def test_a_class_that_is_predicted_too_often_costs_confidence() -> None:
    sure = torch.tensor([[0.9, 0.1]] * 4).double()
    assert transported_confidence(sure, torch.tensor([0, 1])) == pytest.approx((2 * 0.9 + 2 * 0.1) / 4)
    assert transported_confidence(sure, torch.tensor([0, 0])) == pytest.approx(0.9)


def test_quotas_are_whole_and_sum_to_the_images() -> None:
    assert quotas([0.5, 0.3, 0.2], 7) == [4, 2, 1]  # 3.5, 2.1, 1.4: the largest remainder gets the seventh
    assert quotas([1 / 3] * 3, 4) == [2, 1, 1]


def test_many_images_are_a_sample_of_them() -> None:
    generator = torch.Generator().manual_seed(0)
    target = torch.randn(3 * MOST, 4, generator=generator).double().softmax(1)
    labels = torch.arange(400) % 4
    pieces = [transported_confidence(target[start::3], labels) for start in range(3)]
    assert transported_confidence(target, labels) == pytest.approx(sum(pieces) / 3, abs=0.02)
