from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist, pdist

from pmtrans.losses.contrastive_domain_discrepancy import contrastive_domain_discrepancy
from pmtrans.losses.kernels import gaussian_kernel, squared_distances
from pmtrans.losses.maximum_mean_discrepancy import maximum_mean_discrepancy


def plain_kernel(points: np.ndarray, count: int, factor: float = 2.0) -> np.ndarray:
    bandwidth = np.mean(pdist(points, "sqeuclidean"))
    distances = cdist(points, points, "sqeuclidean")
    kernel: np.ndarray = sum(np.exp(-distances / (bandwidth * factor ** (i - count // 2))) for i in range(count))
    return kernel


def features(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(7, 5, generator=generator), torch.randn(6, 5, generator=generator) + 0.5


def test_squared_distances_equal_scipy_also_far_from_the_origin() -> None:
    one, other = features()
    for offset in (0.0, 1000.0):
        expected = cdist(one.double() + offset, other.double() + offset, "sqeuclidean")
        assert np.allclose(squared_distances(one + offset, other + offset), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_gaussian_kernel_equals_scipy(count: int) -> None:
    both = torch.cat(features())
    assert np.allclose(gaussian_kernel(both, count), plain_kernel(both.numpy(), count), rtol=1e-4)


def test_mmd_equals_its_definition() -> None:
    source, target = features()
    kernel = plain_kernel(torch.cat([source, target]).numpy(), 5)
    expected = kernel[:7, :7].mean() + kernel[7:, 7:].mean() - 2 * kernel[:7, 7:].mean()
    assert float(maximum_mean_discrepancy(source, target)) == pytest.approx(expected, rel=1e-4)
    assert float(maximum_mean_discrepancy(source, source)) == pytest.approx(0, abs=1e-5)


def plain_cdd(source: torch.Tensor, target: torch.Tensor, labels_s: list[int], labels_t: list[int]) -> float:
    def discrepancy(c: int, d: int) -> float:
        mine = [source[i].numpy() for i, label in enumerate(labels_s) if label == c]
        theirs = [target[i].numpy() for i, label in enumerate(labels_t) if label == d]
        kernel, n = plain_kernel(np.stack(mine + theirs), 5), len(mine)  # a bandwidth for each pair of classes
        return float(kernel[:n, :n].mean() + kernel[n:, n:].mean() - 2 * kernel[:n, n:].mean())

    shared = sorted(set(labels_s) & set(labels_t) - {-1})
    intra = [discrepancy(c, c) for c in shared]
    inter = [discrepancy(c, d) for c in shared for d in shared if c != d]
    return float(np.mean(intra) - (np.mean(inter) if inter else 0))


@pytest.mark.parametrize(
    "labels_t", [[0, 1, 2, 2, 1, 0], [0, 0, 1, 1, -1, -1], [2, 2, 2, 2, -1, 3], [1, 3, 3, 3, 3, 3]]
)
def test_cdd_equals_plain_loops_over_the_classes_that_both_have(labels_t: list[int]) -> None:
    source, target = features()
    labels_s = [0, 0, 1, 1, 2, 2, 2]
    got = contrastive_domain_discrepancy(source, target, torch.tensor(labels_s), torch.tensor(labels_t), classes=4)
    assert float(got) == pytest.approx(plain_cdd(source, target, labels_s, labels_t), rel=1e-4)


def test_cdd_of_classes_that_are_one_point_each_is_finite() -> None:
    points = torch.zeros(4, 3).requires_grad_()
    labels = torch.tensor([0, 0, 1, 1])
    loss = contrastive_domain_discrepancy(points, points.detach(), labels, labels, classes=2)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0, abs=1e-6)
    assert points.grad is not None
    assert points.grad.isfinite().all()


def test_cdd_without_a_shared_class_is_zero_and_has_finite_gradients() -> None:
    source, target = features()
    source.requires_grad_()
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 2]), torch.full((6,), -1)
    loss = contrastive_domain_discrepancy(source, target, *labels, classes=4)
    loss.backward()
    assert float(loss.detach()) == 0
    assert source.grad is not None
    assert source.grad.isfinite().all()


def test_descent_on_cdd_brings_the_same_class_together_and_others_apart() -> None:
    torch.manual_seed(0)
    source = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    target = torch.tensor([[0.4, 0.5], [0.6, 0.5], [0.4, 0.4], [0.6, 0.4]], requires_grad=True)
    labels = torch.tensor([0, 0, 1, 1])
    optimiser = torch.optim.SGD([target], lr=0.05)
    for _ in range(30):
        optimiser.zero_grad()
        contrastive_domain_discrepancy(source, target, labels, torch.tensor([0, 1, 0, 1]), 2).backward()
        optimiser.step()
    with torch.no_grad():
        assert target[0::2, 0].max() < 0.4  # class 0 of the source lies at x = 0
        assert target[1::2, 0].min() > 0.6
