"""Accuracy on a whole domain, with an interval, from the labels of a part of its images.

The interval of a proportion is Wilson's (Wilson, JASA 1927), which is valid for few images and near 0 and 1. How the
labelled images were picked is read from ``design.csv``, next to the table of labels.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist

from pmtrans.data.reading.listing import read_text
from pmtrans.data.reading.locate import locate
from pmtrans.errors import DataError, one_line
from pmtrans.labelling.choice import CHOSEN, DRAWN

LEVEL = 0.95  # of the intervals
DESIGN = "design.csv"


@dataclass(frozen=True)
class SampledAccuracy:
    """An accuracy in [0, 1] with its interval; ``of`` describes the images it is for."""

    accuracy: float
    low: float
    high: float
    of: str


@dataclass(frozen=True)
class Design:
    """How the images were picked: path -> (why, weight), for every image that was to be labelled."""

    images: Mapping[str, tuple[str, float]]

    @property
    def total(self) -> float:
        """Number of images in the whole target: the sum of all weights."""
        return sum(weight for _, weight in self.images.values())


def wilson(right: int, count: int, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a proportion; [0, 1] without images."""
    if count == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share = right / count
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def measure_random_sample(right: Sequence[bool]) -> SampledAccuracy:
    """All images with equal weight: valid for a random sample."""
    low, high = wilson(sum(right), len(right))
    return SampledAccuracy(sum(right) / len(right), low, high, f"{len(right)} images, as if drawn at random")


def measure_designed(right: Mapping[str, bool], design: Design) -> SampledAccuracy | None:
    """Accuracy on the whole target from the labelled part of a design; None if no drawn image has a label.

    Chosen images are not a random sample: those without a label count as wrong for the low end and as right for the
    high end. Drawn images without a label are assumed to be missing at random.
    """
    chosen = [path for path, (why, _) in design.images.items() if why == CHOSEN]
    known = [right[path] for path in chosen if path in right]
    drawn = [right[path] for path, (why, _) in design.images.items() if why == DRAWN and path in right]
    remaining = design.total - len(chosen)
    if not drawn and remaining > 0.5:
        return None
    share, (low, high) = (sum(drawn) / len(drawn), wilson(sum(drawn), len(drawn))) if drawn else (0.0, (0.0, 0.0))
    missing = len(chosen) - len(known)
    guess = sum(known) + missing * (sum(known) / len(known) if known else share)
    return SampledAccuracy(
        accuracy=(guess + remaining * share) / design.total,
        low=(sum(known) + remaining * low) / design.total,
        high=(sum(known) + missing + remaining * high) / design.total,
        of=f"all {round(design.total)} target images, from {len(known)} chosen and {len(drawn)} drawn at random",
    )


def read_design(labels: Path, root: str | Path | None = None) -> Design | None:
    """The design next to a table of labels, its paths located like those of the labels; None if there is none."""
    path = labels.parent / DESIGN
    if not (labels.is_file() and path.is_file()):
        return None
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path), newline="")))
        places = locate([row["path"] for row in rows], path, root)
        known = [(row["why"], float(row["weight"])) for row in rows]
    except (KeyError, TypeError, ValueError, csv.Error):
        raise DataError(
            f"{one_line(path)}: not the file that label-these wrote: restore that file, or remove this one."
        ) from None
    return Design(dict(zip(places, known, strict=True)))


def measure_labelled(right: Mapping[str, bool], labels: Path, root: str | Path | None = None) -> SampledAccuracy:
    """Accuracy from the images of ``right`` (path -> is the model right): by the design, if they belong to one."""
    design = read_design(labels, root)
    if design is not None and right.keys() <= design.images.keys():
        measured = measure_designed(right, design)
        if measured is not None:
            return measured
        return replace(
            measure_random_sample(list(right.values())), of=f"{len(right)} images that were chosen as uncertain"
        )
    return measure_random_sample(list(right.values()))
