"""Accuracy on a whole domain from the labels of some of its images, with an interval.

The interval of a proportion is Wilson's (Wilson, JASA 1927), which holds for few images and near 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from pmtrans.labelling.choice import CHOSEN, DRAWN

LEVEL = 0.95


@dataclass(frozen=True)
class Measured:
    """A share in [0, 1] with its interval; ``of`` says what it is an accuracy of."""

    accuracy: float
    low: float
    high: float
    of: str


@dataclass(frozen=True)
class Design:
    """How the labelled images came about: path -> (why, weight), for every image that was asked for."""

    images: Mapping[str, tuple[str, float]]

    @property
    def total(self) -> float:
        """Images of the whole target: what all weights sum to."""
        return sum(weight for _, weight in self.images.values())


def wilson(right: int, count: int, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a proportion; without an image nothing is known."""
    if count == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share = right / count
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def measure_plain(right: Sequence[bool]) -> Measured:
    """Images that stand for themselves: right for a sample drawn by chance."""
    low, high = wilson(sum(right), len(right))
    return Measured(sum(right) / len(right), low, high, f"{len(right)} images, as if drawn by chance")


def measure_designed(right: Mapping[str, bool], design: Design) -> Measured | None:
    """The whole target, from the labelled part of a design; None while no drawn image has a label.

    Chosen images are not a sample: those labelled count as they are, those without a label as wrong for the low end
    and as right for the high end. Drawn images without a label are taken as left out by chance.
    """
    chosen = [path for path, (why, _) in design.images.items() if why == CHOSEN]
    known = [right[path] for path in chosen if path in right]
    drawn = [right[path] for path, (why, _) in design.images.items() if why == DRAWN and path in right]
    rest = design.total - len(chosen)
    if not drawn and rest > 0.5:
        return None
    share, (low, high) = (sum(drawn) / len(drawn), wilson(sum(drawn), len(drawn))) if drawn else (0.0, (0.0, 0.0))
    missing = len(chosen) - len(known)
    guess = sum(known) + missing * (sum(known) / len(known) if known else share)
    return Measured(
        accuracy=(guess + rest * share) / design.total,
        low=(sum(known) + rest * low) / design.total,
        high=(sum(known) + missing + rest * high) / design.total,
        of=f"all {round(design.total)} target images, from {len(known)} chosen and {len(drawn)} drawn by chance",
    )
