from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist, jensenshannon
from scipy.special import log_softmax, softmax

from pmtrans.losses.classifier_discrepancy import classifier_discrepancy
from pmtrans.losses.jensen_shannon import jensen_shannon, pairwise_divergence
from pmtrans.losses.margin_disparity import log_complement, margin_disparity
from pmtrans.losses.sliced_wasserstein import projected_distance, sliced_wasserstein


def logits(*shape: int, seed: int = 0, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_the_discrepancy_of_classifiers_is_the_mean_absolute_difference_of_probabilities() -> None:
    first, second = logits(5, 4), logits(5, 4, seed=1)
    p, q = softmax(first.numpy(), 1), softmax(second.numpy(), 1)
    loop = sum(abs(p[i, k] - q[i, k]) for i in range(5) for k in range(4)) / 20
    assert float(classifier_discrepancy(first, second)) == pytest.approx(loop, rel=1e-5)
    assert float(classifier_discrepancy(first, first + 3)) == pytest.approx(0, abs=1e-7)


def test_along_each_direction_it_is_the_cost_of_the_best_assignment() -> None:
    first, second = logits(7, 3), logits(7, 3, seed=1)
    directions = torch.nn.functional.normalize(logits(3, 6, seed=2), dim=0)
    costs = []
    for direction in directions.T.numpy():
        matrix = cdist((first.numpy() @ direction)[:, None], (second.numpy() @ direction)[:, None], "sqeuclidean")
        costs.append(matrix[linear_sum_assignment(matrix)].mean())
    assert float(projected_distance(first, second, directions)) == pytest.approx(np.mean(costs), rel=1e-5)


def test_in_one_dimension_every_slice_is_the_whole_distance() -> None:
    first, second = logits(6, 1), logits(6, 1, seed=1)
    best = min(((first[list(order)] - second) ** 2).mean() for order in itertools.permutations(range(6)))
    assert float(sliced_wasserstein(first, second, 3)) == pytest.approx(float(best), rel=1e-5)


def test_a_shift_costs_its_squared_length_over_the_dimension() -> None:
    """E over unit directions of <u, shift>^2 = |shift|^2 / D; and the order of the samples means nothing."""
    torch.manual_seed(0)
    sample, shift = logits(8, 4), torch.tensor([1.0, 2.0, 0.0, -2.0])
    distance = float(sliced_wasserstein(sample, (sample + shift)[torch.randperm(8)], 20_000))
    assert distance == pytest.approx(9 / 4, rel=0.03)


def test_margin_disparity_is_its_formula_written_out() -> None:
    z_s, z_t, a_s, a_t = (logits(5, 4, seed=seed) for seed in range(4))
    source = [-log_softmax(a.numpy())[int(z.argmax())] for a, z in zip(a_s, z_s, strict=True)]
    target = [-np.log(1 - softmax(a.numpy())[int(z.argmax())]) for a, z in zip(a_t, z_t, strict=True)]
    expected = 3 * np.mean(source) + np.mean(target)
    assert float(margin_disparity(z_s, z_t, a_s, a_t, 3.0)) == pytest.approx(expected, rel=1e-5)


def test_the_complement_is_exact_where_one_minus_p_would_round_to_nothing() -> None:
    certain = torch.tensor([[60.0, 0.0, 0.0]], requires_grad=True)
    value = log_complement(certain, torch.tensor([0]))
    assert float(value.detach()) == pytest.approx(np.log(2) - 60, rel=1e-6)
    value.sum().backward()
    assert certain.grad is not None
    assert certain.grad[0].tolist() == pytest.approx([-1, 0.5, 0.5], abs=1e-5)


def test_jensen_shannon_is_that_of_scipy() -> None:
    first, second = logits(5, 4), logits(5, 4, seed=1)
    expected = jensenshannon(softmax(first.numpy(), 1), softmax(second.numpy(), 1), axis=1) ** 2
    assert np.allclose(jensen_shannon(first, second), expected, atol=1e-6)


def test_pairs_count_alike_and_no_pair_is_nothing() -> None:
    first, second = logits(3, 4), logits(2, 4, seed=1)
    chosen = torch.tensor([[True, False], [False, False], [True, True]])
    total = 0.0
    for i, j in ((0, 0), (2, 0), (2, 1)):
        total += jensenshannon(softmax(first[i].numpy() / 10), softmax(second[j].numpy() / 10)) ** 2
    assert float(pairwise_divergence(first, second, chosen, 10.0)) == pytest.approx(100 * total / 3, rel=1e-3)
    assert float(pairwise_divergence(first, second, torch.zeros_like(chosen), 10.0)) == 0
