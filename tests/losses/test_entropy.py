"""Entropies against SciPy, and class balance against its formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import entr, softmax

from pmtrans.losses.class_balance import class_balance_loss
from pmtrans.losses.entropy import entropy, entropy_of_mean, entropy_weights, mutual_information


def test_entropies_are_those_of_scipy() -> None:
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)) * 3
    p = softmax(logits.double().numpy(), axis=1)
    each, together = entr(p).sum(1), entr(p.mean(0)).sum()
    assert np.allclose(entropy(logits), each, atol=1e-6)
    assert float(entropy_of_mean(logits)) == pytest.approx(together, abs=1e-6)
    assert float(mutual_information(logits)) == pytest.approx(together - each.mean(), abs=1e-6)
    weights = 1 + np.exp(-each)
    assert np.allclose(entropy_weights(logits), weights / weights.sum() * 6, atol=1e-6)


def test_certain_predictions_give_finite_gradients() -> None:
    logits = torch.tensor([[300.0, -300.0, 0.0], [300.0, -300.0, 0.0]], requires_grad=True)
    mutual_information(logits).backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_weights_carry_no_gradient() -> None:
    assert not entropy_weights(torch.zeros(2, 3, requires_grad=True)).requires_grad


def test_class_balance_is_least_for_an_even_batch() -> None:
    even, skewed = 9 * torch.eye(3), torch.tensor([[9.0, 0, 0]] * 3)
    assert float(class_balance_loss(even)) == pytest.approx(math.log(3), rel=1e-4)
    assert float(class_balance_loss(skewed)) > 5


def test_class_balance_is_the_mean_logarithm_of_the_mean_prediction() -> None:
    logits = 2 * torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    mean = softmax(logits.double().numpy(), axis=1).mean(0)
    assert float(class_balance_loss(logits)) == pytest.approx(-np.log(mean).mean(), rel=1e-5)
    forgotten = torch.tensor([[50.0, 0.0]] * 3)
    assert float(class_balance_loss(forgotten)) == pytest.approx(-math.log(1e-6) / 2, rel=1e-4)
