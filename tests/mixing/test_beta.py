from __future__ import annotations

import pytest
import torch
from scipy.special import betainc, betaincinv

from pmtrans.mixing.beta import LearnableBeta, softplus_inverse


@pytest.mark.parametrize("start", [(1.0, 1.0), (0.5, 0.7), (2.0, 3.0), (1.46, 0.83)])
def test_gradient_of_a_sample_equals_finite_differences_of_the_quantile_function(start: tuple[float, float]) -> None:
    beta = LearnableBeta(start, floor=0.3, ceiling=5.0)
    torch.manual_seed(0)
    b, g = beta.concentrations().tolist()
    torch.manual_seed(1)
    samples = beta.sample((40,)).double()
    slope = torch.sigmoid(beta.raw.detach()).double()  # d concentration / d raw
    step = 1e-4
    for index in range(len(samples)):
        x = float(samples[index].detach())
        if not 0.01 < x < 0.99:
            continue  # betaincinv itself is not exact enough at the ends for a difference quotient
        (raw_gradient,) = torch.autograd.grad(samples[index], beta.raw, retain_graph=True)
        got = raw_gradient.double() / slope
        quantile = betainc(float(b), float(g), x)
        by_b = (betaincinv(float(b) + step, float(g), quantile) - betaincinv(float(b) - step, float(g), quantile)) / (
            2 * step
        )
        by_g = (betaincinv(float(b), float(g) + step, quantile) - betaincinv(float(b), float(g) - step, quantile)) / (
            2 * step
        )
        assert float(got[0]) == pytest.approx(by_b, rel=2e-2, abs=2e-3)
        assert float(got[1]) == pytest.approx(by_g, rel=2e-2, abs=2e-3)


def test_starts_at_the_given_concentrations() -> None:
    beta = LearnableBeta((1.0, 2.5), floor=0.3, ceiling=5.0)
    assert beta.concentrations().tolist() == pytest.approx([1.0, 2.5])


def test_projection_keeps_the_range_closed_and_the_way_back_open() -> None:
    beta = LearnableBeta((1.0, 1.0), floor=0.3, ceiling=5.0)
    with torch.no_grad():
        beta.raw.copy_(torch.tensor([-100.0, 100.0]))
    beta.project()
    low, high = beta.concentrations().tolist()
    assert 0.3 < low < 0.35
    assert high == pytest.approx(5.0, abs=1e-4)
    beta.concentrations().sum().backward()
    assert beta.raw.grad is not None
    assert (beta.raw.grad > 0.01).all()  # not saturated


def test_samples_are_float32_under_autocast_and_have_the_beta_mean() -> None:
    beta = LearnableBeta((2.0, 1.0), floor=0.3, ceiling=5.0)
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        samples = beta.sample((20000,))
    assert samples.dtype == torch.float32
    assert float(samples.mean()) == pytest.approx(2 / 3, abs=0.01)


@pytest.mark.parametrize("value", [0.01, 0.7, 3.0, 30.0])
def test_softplus_inverse_inverts(value: float) -> None:
    assert float(
        torch.nn.functional.softplus(torch.tensor(softplus_inverse(value), dtype=torch.double))
    ) == pytest.approx(value)
