"""Is a variant better than the reference? Differences of the same task and seed, and their bootstrap interval.

Tasks differ far more than variants do: the difference within a pair is free of that. The interval is the percentile
bootstrap of the mean (Efron and Tibshirani, 1993, chapter 13): pairs are drawn with replacement, always the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

LEAST_PAIRS = 3
LEVEL = 0.9
RESAMPLES = 10_000

Pair = tuple[str, int]  # task and seed


@dataclass(frozen=True)
class Difference:
    """The mean over ``pairs`` pairs; the interval is None where these are fewer than ``LEAST_PAIRS``."""

    mean: float
    pairs: int
    interval: tuple[float, float] | None


def paired_difference(variant: Mapping[Pair, float], reference: Mapping[Pair, float]) -> Difference | None:
    """Variant minus reference over the tasks and seeds that both have; None: there are none."""
    differences = [variant[pair] - reference[pair] for pair in sorted(variant) if pair in reference]
    if not differences:
        return None
    interval = bootstrap_interval(differences) if len(differences) >= LEAST_PAIRS else None
    return Difference(fmean(differences), len(differences), interval)


def bootstrap_interval(values: Sequence[float], level: float = LEVEL) -> tuple[float, float]:
    """The middle ``level`` of the means of resampled values; the same values give the same interval."""
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(np.asarray(values)[drawn].mean(1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
