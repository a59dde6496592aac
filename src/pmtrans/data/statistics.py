"""A domain in a few numbers: sizes, shapes, colour and sharpness of its images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pmtrans.data.facts import Facts
from pmtrans.errors import one_line

SMALL_SIDE = 32
LONG_ASPECT = 4.0


@dataclass(frozen=True)
class Spread:
    """The least, the middle and the greatest of a measurement."""

    min: float
    median: float
    max: float


@dataclass(frozen=True)
class Statistics:
    """Measurements over the readable images of a domain. Colours are 0 to 255."""

    width: Spread
    height: Spread
    aspect_ratio: Spread  # width / height
    colour: tuple[float, float, float]  # mean red, green, blue
    contrast: Spread  # standard deviation of the grey levels
    sharpness: Spread  # variance of the Laplacian, at a shorter side of at most 256


def summarise(facts: Sequence[Facts]) -> Statistics | None:
    """The statistics of a domain, or None when no image of it could be read."""
    if not facts:
        return None
    red, green, blue = np.mean([fact.colour for fact in facts], axis=0).tolist()
    return Statistics(
        width=_spread(facts, lambda fact: fact.width),
        height=_spread(facts, lambda fact: fact.height),
        aspect_ratio=_spread(facts, lambda fact: fact.width / fact.height),
        colour=(red, green, blue),
        contrast=_spread(facts, lambda fact: fact.contrast),
        sharpness=_spread(facts, lambda fact: fact.sharpness),
    )


def odd_shapes(name: str, paths: Sequence[str], facts: Sequence[Facts]) -> tuple[str, ...]:
    """Warnings of images that are tiny or very long, which a square crop hardly shows."""
    warnings = []
    tiny = [path for path, fact in zip(paths, facts, strict=True) if _shorter(fact) < SMALL_SIDE]
    if tiny:
        warnings.append(
            f"{name}: {len(tiny)} images have a side under {SMALL_SIDE} pixels, such as {one_line(tiny[0])}"
        )
    long = [path for path, fact in zip(paths, facts, strict=True) if _aspect(fact) > LONG_ASPECT]
    if long:
        warnings.append(
            f"{name}: {len(long)} images are over {LONG_ASPECT:.0f} times as long as wide, such as {one_line(long[0])}"
        )
    return tuple(warnings)


def _aspect(fact: Facts) -> float:
    return max(fact.width, fact.height) / _shorter(fact)


def _shorter(fact: Facts) -> int:
    return min(fact.width, fact.height)


def _spread(facts: Sequence[Facts], measure: Callable[[Facts], float]) -> Spread:
    values = np.array([measure(fact) for fact in facts], dtype=np.float64)
    return Spread(float(values.min()), float(np.median(values)), float(values.max()))
