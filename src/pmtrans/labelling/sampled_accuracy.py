"""Accuracy on a whole domain from the labels of some of its images, with an interval.

The interval of a proportion is Wilson's (Wilson, JASA 1927), which holds for few images and near 0 and 1.

``design.csv``: how the images to label came about, found again beside the table of their labels.
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


DESIGN = "design.csv"


def read_design(labels: Path, root: str | Path | None = None) -> Design | None:
    """The design that lies beside a table of labels, its paths located as those of the labels are."""
    path = labels.parent / DESIGN
    if not (labels.is_file() and path.is_file()):
        return None
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path), newline="")))
        places = locate([row["path"] for row in rows], path, root)
        known = [(row["why"], float(row["weight"])) for row in rows]
    except (KeyError, TypeError, ValueError, csv.Error):
        raise DataError(
            f"{one_line(path)}: not the file that label-these wrote; put that back, or take this one away."
        ) from None
    return Design(dict(zip(places, known, strict=True)))


def measure_labelled(right: Mapping[str, bool], labels: Path, root: str | Path | None = None) -> Measured:
    """Accuracy from the images of ``right`` (path -> is the model right): by the design, if they are part of one."""
    design = read_design(labels, root)
    if design is not None and right.keys() <= design.images.keys():
        measured = measure_designed(right, design)
        if measured is not None:
            return measured
        return replace(measure_plain(list(right.values())), of=f"{len(right)} images that were chosen as hard ones")
    return measure_plain(list(right.values()))
