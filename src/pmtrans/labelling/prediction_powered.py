"""Prediction-powered inference: a few labels and the predictions of all images give one accuracy with an interval.

Angelopoulos et al., Prediction-powered inference, Science 2023, with the power tuning of PPI++ (Angelopoulos, Duchi and
Zrnic, 2023). Let f_i be the probability that image i is right, known for all images, and y_i, known for the n labelled
ones, whether it is. Then

    accuracy = lambda mean_all(f) + mean_labelled(y - lambda f),    lambda = cov(y, f) / var(f) in [0, 1].

The labels correct whatever is wrong with f, so it is unbiased for any f that was fixed before; a good f leaves less to
chance: the variance is that of y - lambda f instead of y. With few labels a normal interval is too short near 0 and 1,
so the interval is Wilson's, for as many images as would give this variance without predictions.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from pmtrans.evaluation.interval import wilson_interval

LEAST = 5  # labelled images, below which lambda is noise


def prediction_powered(
    right: Sequence[bool], probability: Sequence[float], mean_probability: float, images: int, level: float
) -> tuple[float, float, float]:
    """(accuracy, low, high) of ``images`` images, of which a random sample has labels.

    ``probability`` is f of the labelled ones, ``mean_probability`` the mean of f over all. Without images: [0, 1].
    """
    count = len(right)
    if count == 0:
        return 0.5, 0.0, 1.0
    y = [float(value) for value in right]
    power = tuned_power(y, probability)
    accuracy = power * mean_probability + fmean(v - power * f for v, f in zip(y, probability, strict=True))
    accuracy = min(max(accuracy, 0.0), 1.0)
    effective = count * _variance_ratio(y, probability, power)
    if images > count:  # a sample without replacement: as the target is finite, what was labelled is known
        effective *= (images - 1) / (images - count)
        return accuracy, *wilson_interval(accuracy, effective, level)
    return accuracy, accuracy, accuracy


def tuned_power(right: Sequence[float], probability: Sequence[float]) -> float:
    """lambda = cov(y, f) / var(f), in [0, 1]; 0 where too little is labelled to know it."""
    if len(right) < LEAST:
        return 0.0
    mean_y, mean_f = fmean(right), fmean(probability)
    covariance = sum((y - mean_y) * (f - mean_f) for y, f in zip(right, probability, strict=True))
    variance = sum((f - mean_f) ** 2 for f in probability)
    return min(max(covariance / variance, 0.0), 1.0) if variance > 0 else 0.0


def _variance_ratio(right: Sequence[float], probability: Sequence[float], power: float) -> float:
    """var(y) / var(y - lambda f), at least 1; one degree of freedom went into lambda."""
    count = len(right)
    if power == 0.0 or count <= 3:
        return 1.0
    left = [y - power * f for y, f in zip(right, probability, strict=True)]
    mean_y, mean_left = fmean(right), fmean(left)
    before = sum((y - mean_y) ** 2 for y in right) / (count - 1)
    after = sum((value - mean_left) ** 2 for value in left) / (count - 2)
    return max(before / after, 1.0) if after > 0 else 1.0
