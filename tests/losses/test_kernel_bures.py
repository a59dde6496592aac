from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import torch

from pmtrans.losses.kernel_bures import conditional_bures_distance, conditional_kernel_bures_loss


def conditional_covariance(x: np.ndarray, y: np.ndarray, epsilon: float) -> np.ndarray:
    """R_XX - R_XY (R_YY + eps I)^-1 R_YX in the space of the features themselves (linear kernels)."""
    x, y, n = x - x.mean(0), y - y.mean(0), len(x)
    r_xx, r_xy, r_yy = x.T @ x / n, x.T @ y / n, y.T @ y / n
    return np.asarray(r_xx - r_xy @ np.linalg.inv(r_yy + epsilon * np.eye(len(r_yy))) @ r_xy.T)


@pytest.mark.parametrize("epsilon", [1e-2, 0.5])
@pytest.mark.parametrize("size", [(9, 8), (5, 12)])
def test_kernel_form_equals_the_bures_distance_of_conditional_covariances(
    epsilon: float, size: tuple[int, int]
) -> None:
    """With linear kernels the operators are plain matrices: their distance by scipy's matrix square roots."""
    random = np.random.default_rng(0)
    x_s, x_t = random.normal(size=(size[0], 4)), random.normal(size=(size[1], 4)) @ random.normal(size=(4, 4))
    y_s, y_t = random.normal(size=(size[0], 3)), random.normal(size=(size[1], 3))
    r_s, r_t = conditional_covariance(x_s, y_s, epsilon), conditional_covariance(x_t, y_t, epsilon)
    root = scipy.linalg.sqrtm(r_s)
    expected = np.trace(r_s) + np.trace(r_t) - 2 * np.trace(np.real(scipy.linalg.sqrtm(root @ r_t @ root)))
    x, y = (torch.from_numpy(np.concatenate(pair)) for pair in ((x_s, x_t), (y_s, y_t)))
    got = conditional_bures_distance(x @ x.T, y @ y.T, size[0], epsilon)
    assert float(got) == pytest.approx(expected, rel=1e-5)


def test_equal_domains_have_no_distance_and_other_groups_do() -> None:
    torch.manual_seed(0)
    features, labels = torch.randn(8, 5), torch.eye(4).repeat(2, 1)
    assert float(conditional_kernel_bures_loss(features, features, labels, labels)) == pytest.approx(0, abs=1e-4)
    grouped = torch.eye(4).repeat_interleave(2, 0)
    assert float(conditional_kernel_bures_loss(features, features, labels, grouped)) > 1e-3


def test_its_gradient_is_right_in_features_and_in_soft_labels() -> None:
    torch.manual_seed(0)
    source, target = torch.randn(4, 3, dtype=torch.double), torch.randn(5, 3, dtype=torch.double)
    labels_s, labels_t = torch.eye(2, dtype=torch.double).repeat(2, 1), torch.randn(5, 2).double().softmax(1)

    def distance(features: torch.Tensor, soft: torch.Tensor) -> torch.Tensor:
        x, y = torch.cat([source, features]), torch.cat([labels_s, soft])
        return conditional_bures_distance(torch.exp(x @ x.T), torch.exp(y @ y.T), 4, 0.1)

    assert torch.autograd.gradcheck(distance, (target.requires_grad_(), labels_t.requires_grad_()), atol=1e-4)


def test_a_batch_of_one_class_and_even_predictions_is_no_accident() -> None:
    features = torch.randn(6, 4, requires_grad=True)
    labels, even = torch.tensor([[1.0, 0, 0]] * 6), torch.full((6, 3), 1 / 3)
    conditional_kernel_bures_loss(features, features.detach() + 1, labels, even).backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()
