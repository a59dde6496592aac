"""CGDM: the discrepancy of gradients, and cross entropy on labels of which certain ones weigh more."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import entr, softmax

from pmtrans.losses.gradient_discrepancy import gradient_discrepancy
from pmtrans.losses.weighted_cross_entropy import weighted_cross_entropy


def test_the_gradient_discrepancy_of_a_linear_classifier_is_its_closed_form() -> None:
    """dCE/dW = (p - y)^T f / B, dCE/db = mean(p - y)."""
    torch.manual_seed(0)
    head = torch.nn.Linear(4, 3)
    f_s, f_t, y_s, y_t = torch.randn(5, 4), torch.randn(5, 4), torch.arange(5) % 3, torch.arange(5) % 2
    losses = [torch.nn.functional.cross_entropy(head(f), y) for f, y in ((f_s, y_s), (f_t, y_t))]
    cosines = []
    slopes = []
    for f, y in ((f_s, y_s), (f_t, y_t)):
        error = (softmax(head(f).detach().numpy(), 1) - np.eye(3)[y.numpy()]) / 5
        slopes.append((error.T @ f.numpy(), error.sum(0)))
    for one, other in zip(*slopes, strict=True):
        rows = zip(np.atleast_2d(one), np.atleast_2d(other), strict=True)  # a row of W is one output's
        cosines.append(np.mean([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in rows]))
    found = float(gradient_discrepancy(losses[0], losses[1], head).detach())
    assert found == pytest.approx(1 - np.mean(cosines), rel=1e-4)


def test_features_can_follow_the_gradient_of_the_gradient_discrepancy() -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(4, 3)
    f_s, f_t = torch.randn(5, 4), torch.randn(5, 4, requires_grad=True)
    labels = torch.arange(5) % 3

    def discrepancy(target: torch.Tensor) -> torch.Tensor:
        source = torch.nn.functional.cross_entropy(head(f_s), labels)
        return gradient_discrepancy(source, torch.nn.functional.cross_entropy(head(target), labels), head)

    before = discrepancy(f_t)
    (slope,) = torch.autograd.grad(before, f_t)
    bumped = f_t.detach().clone()
    bumped[1, 2] += 1e-2
    lower = f_t.detach().clone()
    lower[1, 2] -= 1e-2
    difference = float((discrepancy(bumped) - discrepancy(lower)).detach()) / 2e-2
    assert float(slope[1, 2]) == pytest.approx(difference, rel=0.02)


def test_a_unit_that_no_image_reaches_leaves_the_gradient_discrepancy_finite() -> None:
    torch.manual_seed(0)
    head = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    with torch.no_grad():
        head.get_parameter("0.bias")[2] = -100
    f_s, f_t = torch.randn(5, 4), torch.randn(5, 4, requires_grad=True)
    losses = [torch.nn.functional.cross_entropy(head(f), torch.arange(5) % 3) for f in (f_s, f_t)]
    found = gradient_discrepancy(losses[0], losses[1], head)
    (slope,) = torch.autograd.grad(found, f_t)
    assert found.isfinite()
    assert slope.isfinite().all()
    assert slope.any()


def test_certain_images_weigh_more_in_the_cross_entropy_on_pseudo_labels() -> None:
    logits, labels = 3 * torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 4
    p = softmax(logits.numpy(), 1)
    weights = 1 + np.exp(-entr(p).sum(1))
    expected = np.mean(weights / weights.sum() * -np.log(p[range(6), labels.numpy()]))  # as the authors' code has it
    assert float(weighted_cross_entropy(logits, labels)) == pytest.approx(expected, rel=1e-5)
