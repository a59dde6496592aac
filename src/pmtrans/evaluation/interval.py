"""The interval of a proportion (Wilson, JASA 1927): valid for few images and near 0 and 1."""

from __future__ import annotations

import math
from statistics import NormalDist


def wilson_interval(share: float, count: float, level: float) -> tuple[float, float]:
    """(low, high); ``count`` may be an effective number of images."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)
