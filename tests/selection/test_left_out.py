"""Fits over tasks: against numpy, and by simulated tasks whose spread is known."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from pmtrans.selection.left_out import (
    RIDGE,
    Spread,
    fit_linear,
    fit_spread,
    inverse_logit,
    left_out_residuals,
    logit,
    weighted_quantile,
)


def test_the_line_is_that_of_weighted_ridge_regression() -> None:
    random = np.random.default_rng(0)
    x, y, weight = random.normal(size=(20, 2)), random.normal(size=20), random.random(20) + 0.1
    fitted = fit_linear(x, y, weight)
    share = weight / weight.sum()

    def loss(values: list[float]) -> float:
        left = [y[i] - values[0] - values[1] * x[i, 0] - values[2] * x[i, 1] for i in range(20)]
        squares = sum(float(s * v * v) for s, v in zip(share, left, strict=True))
        return squares + RIDGE * (values[1] ** 2 + values[2] ** 2)

    best = [fitted.intercept, *fitted.coefficients]
    for place in range(3):
        for step in (-1e-3, 1e-3):
            moved = [value + step * (place == i) for i, value in enumerate(best)]
            assert loss(moved) > loss(best)


def test_the_residual_of_a_task_does_not_depend_on_its_own_truth() -> None:
    random = np.random.default_rng(1)
    x, y, tasks = random.normal(size=(12, 1)), random.normal(size=12), ["a", "b", "c"] * 4
    before = y - left_out_residuals(x, y, np.ones(12), tasks)
    mine = np.array([task == "b" for task in tasks])
    changed = np.where(mine, y + 5.0, y)
    after = changed - left_out_residuals(x, changed, np.ones(12), tasks)
    assert after[mine] == pytest.approx(before[mine])
    assert not np.allclose(after[~mine], before[~mine])


def test_the_interval_covers_as_often_as_it_says() -> None:
    """Residuals of deviation sqrt(0.2^2 + (0.5 d)^2 + s^2): the fitted spread covers 90 % of new ones."""
    random = np.random.default_rng(2)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        difficulty, sampling = random.random(count), 0.1 + 0.2 * random.random(count)
        deviation = np.sqrt(0.2**2 + (0.5 * difficulty) ** 2 + sampling**2)
        return random.normal(size=count) * deviation, difficulty, sampling

    residual, difficulty, sampling = draw(3000)
    spread = fit_spread(residual, difficulty, sampling, np.ones(3000), 0.9)
    assert spread.base == pytest.approx(0.2, abs=0.08)
    assert spread.slope == pytest.approx(0.5, abs=0.1)
    new, difficulty, sampling = draw(3000)
    half = NormalDist().inv_cdf(0.95)
    held = [abs(r) <= half * spread(d, s) for r, d, s in zip(new, difficulty, sampling, strict=True)]
    assert np.mean(held) == pytest.approx(0.9, abs=0.025)


def test_a_spread_adds_squares() -> None:
    assert Spread(0.3, 2.0, 1.5)(0.2, 1.2) == pytest.approx(1.5 * math.sqrt(0.09 + 0.16 + 1.44))


def test_the_quantile_leaves_room_for_the_next_value() -> None:
    values = np.arange(1.0, 10.0)  # nine: with the next one there are ten, and nine tenths of them lie at or below 9
    assert weighted_quantile(values, np.ones(9), 0.9) == 9.0
    assert weighted_quantile(np.arange(1.0, 20.0), np.ones(19), 0.9) == 18.0
    heavy = np.where(values == 3.0, 1000.0, 1.0)
    assert weighted_quantile(values, heavy, 0.5) == 3.0


def test_logits_are_bounded_and_invert() -> None:
    assert inverse_logit(logit(0.3)) == pytest.approx(0.3)
    assert logit(0.0) == logit(0.005) == pytest.approx(math.log(0.01 / 0.99))
