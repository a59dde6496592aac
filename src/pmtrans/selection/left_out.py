"""Regression over tasks whose truth is known, and what it is worth on a task that was left out.

Few tasks have known truth, and adaptations of one task err alike. So every residual here is of a task whose
adaptations the coefficients have not seen: they are fitted again without each task in turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RIDGE = 0.005  # of standardised weights: keeps signals that move together from cancelling each other


@dataclass(frozen=True)
class Linear:
    """y = intercept + coefficients . x"""

    coefficients: tuple[float, ...]
    intercept: float

    def __call__(self, x: Sequence[float]) -> float:
        return self.intercept + sum(c * value for c, value in zip(self.coefficients, x, strict=True))


@dataclass(frozen=True)
class Spread:
    """Standard deviation of what is left: sqrt(base^2 + (slope difficulty)^2 + sampling^2), times ``factor``.

    ``factor`` makes intervals at the quantiles of a normal distribution cover as often as they should on tasks that
    were left out.
    """

    base: float
    slope: float
    factor: float

    def __call__(self, difficulty: float, sampling: float) -> float:
        return self.factor * math.sqrt(self.base**2 + (self.slope * difficulty) ** 2 + sampling**2)


def fit_linear(x_NF: Array, y_N: Array, weight_N: Array, *, intercept: bool = True) -> Linear:
    """Weighted least squares with a small ridge; without an intercept it passes through the origin."""
    weight_N = weight_N / weight_N.sum()
    centre_F = weight_N @ x_NF if intercept else np.zeros(x_NF.shape[1])
    mean = float(weight_N @ y_N) if intercept else 0.0
    inner_NF = x_NF - centre_F
    gram = (inner_NF * weight_N[:, None]).T @ inner_NF
    ridge = RIDGE * np.eye(len(gram)) if intercept else 1e-6 * np.eye(len(gram))
    coefficients = np.linalg.solve(gram + ridge, (inner_NF * weight_N[:, None]).T @ (y_N - mean))
    return Linear(tuple(coefficients.tolist()), mean - float(centre_F @ coefficients))


def left_out_residuals(
    x_NF: Array, y_N: Array, weight_N: Array, tasks: Sequence[str], *, intercept: bool = True
) -> Array:
    """Truth minus prediction, each by a fit without the task it belongs to."""
    residual_N = np.zeros(len(y_N))
    names = np.asarray(tasks)
    for task in np.unique(names):
        mine = names == task
        fitted = fit_linear(x_NF[~mine], y_N[~mine], weight_N[~mine], intercept=intercept)
        residual_N[mine] = y_N[mine] - np.array([fitted(row) for row in x_NF[mine].tolist()])
    return residual_N


def fit_spread(
    residual_N: Array, difficulty_N: Array, sampling_N: Array, weight_N: Array, level: float, believed: float = 1.0
) -> Spread:
    """Moments for base and slope, then the factor with which a share ``level`` of the residuals is inside.

    ``believed``: the part of the slope that is taken over, where it is not to leave too little of the base.
    """
    left_N = np.maximum(residual_N**2 - sampling_N**2, 0.0)
    square_N = difficulty_N**2
    slope2 = 0.0
    if square_N.std() > 0:
        centred = square_N - np.average(square_N, weights=weight_N)
        slope2 = believed * max(0.0, float((weight_N * centred * left_N).sum() / (weight_N * centred**2).sum()))
    base2 = max(1e-6, float(np.average(left_N - slope2 * square_N, weights=weight_N)))
    plain = Spread(math.sqrt(base2), math.sqrt(slope2), 1.0)
    ratio_N = np.abs(residual_N) / np.array([plain(d, s) for d, s in zip(difficulty_N, sampling_N, strict=True)])
    return Spread(plain.base, plain.slope, weighted_quantile(ratio_N, weight_N, level) / normal_half(level))


def weighted_quantile(values_N: Array, weight_N: Array, level: float) -> float:
    """The smallest value at or below which lies a share ``level`` of the weight, one average value counted as above."""
    order = np.argsort(values_N)
    share = np.cumsum(weight_N[order]) / (weight_N.sum() + weight_N.mean())
    return float(values_N[order][min(int(np.searchsorted(share, level)), len(order) - 1)])


def normal_half(level: float) -> float:
    """Half the width, in standard deviations, of a normal interval."""
    return NormalDist().inv_cdf(0.5 + level / 2)


def logit(share: float) -> float:
    """log(p / (1 - p)), of a share kept one percent off 0 and 1."""
    share = min(max(share, 0.01), 0.99)
    return math.log(share / (1 - share))


def inverse_logit(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value))
