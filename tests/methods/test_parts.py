from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import expit

from pmtrans.losses.domain_adversarial import domain_adversarial_loss
from pmtrans.methods.method import Moment
from pmtrans.methods.parts.adversary import Discriminator, reversal_coefficient, reverse_gradient


def test_reversal_is_the_identity_and_its_gradient_is_the_negated_finite_difference() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, dtype=torch.float64)

    def loss(values: torch.Tensor) -> torch.Tensor:
        return (values @ weight).tanh().square().sum()

    assert torch.equal(reverse_gradient(x, 0.3), x)
    loss(reverse_gradient(x, 0.3)).backward()
    assert x.grad is not None
    for place in np.ndindex(3, 2):
        step = torch.zeros(3, 2, dtype=torch.float64)
        step[place] = 1e-6
        with torch.no_grad():
            slope = float(loss(x + step) - loss(x - step)) / 2e-6
        assert float(x.grad[place]) == pytest.approx(-0.3 * slope, abs=1e-8)


def test_parameters_after_the_reversal_keep_their_direction() -> None:
    x, w = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    (w * reverse_gradient(x)).backward()
    assert (float(x.grad), float(w.grad)) == (-3.0, 2.0)  # type: ignore[arg-type]


def test_the_coefficient_ramps_from_nothing_to_its_top() -> None:
    assert reversal_coefficient(Moment(0, 100, 10)) == 0
    assert reversal_coefficient(Moment(30, 100, 10)) == pytest.approx(2 / (1 + math.exp(-3)) - 1)
    # the published form of a ramp over steps: 2 h / (1 + exp(-i / 1000)) - h
    moment = Moment(700, 10**6, 10, pairs=8)
    assert reversal_coefficient(moment, 0.1, 80_000) == pytest.approx(0.2 / (1 + math.exp(-0.7)) - 0.1)


def test_a_discriminator_of_three_layers_is_the_formula_written_out() -> None:
    torch.manual_seed(0)
    discriminator = Discriminator(5, hidden=4, layers=3).eval()
    values = torch.randn(7, 5)
    parameters = [p.detach().numpy() for p in discriminator.parameters()]
    expected = values.numpy()
    for weight, bias in zip(parameters[0:4:2], parameters[1:4:2], strict=True):
        expected = np.maximum(expected @ weight.T + bias, 0)
    expected = (expected @ parameters[4].T + parameters[5])[:, 0]
    assert len(parameters) == 6
    assert np.allclose(discriminator(values).detach().numpy(), expected, atol=1e-6)
    assert discriminator(values.expand(2, 7, 5)).shape == (2, 7)


def test_the_domain_loss_is_the_weighted_binary_cross_entropy_of_both_domains() -> None:
    torch.manual_seed(2)
    source, target = torch.randn(4), torch.randn(5)
    w_s, w_t = torch.rand(4), torch.rand(5)
    log_s, log_t = -np.log(expit(source.numpy())), -np.log(1 - expit(target.numpy()))
    plain = (log_s.mean() + log_t.mean()) / 2
    assert float(domain_adversarial_loss(source, target)) == pytest.approx(plain, abs=1e-6)
    weighted = ((w_s.numpy() * log_s).mean() + (w_t.numpy() * log_t).mean()) / 2
    assert float(domain_adversarial_loss(source, target, w_s, w_t)) == pytest.approx(weighted, abs=1e-6)
    sure = domain_adversarial_loss(torch.tensor([90.0]), torch.tensor([-90.0]))
    assert float(sure) == pytest.approx(0, abs=1e-6)
