"""Accuracy on a whole domain, with an interval, from the labels of a part of its images.

The interval of a proportion is Wilson's (Wilson, JASA 1927), which is valid for few images and near 0 and 1. How the
labelled images were picked is read from ``design.csv``, next to the table of labels. Where that has the model's own
probability of being right, the images without a label count too (``prediction_powered.py``).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pmtrans.data.reading.listing import read_text
from pmtrans.data.reading.locate import locate
from pmtrans.data.reading.target_labels import CHOSEN, DESIGN, DRAWN
from pmtrans.errors import DataError, one_line
from pmtrans.evaluation.interval import wilson_interval
from pmtrans.labelling.prediction_powered import prediction_powered

LEVEL = 0.95  # of the intervals


@dataclass(frozen=True)
class SampledAccuracy:
    """An accuracy in [0, 1] with its interval; ``of`` describes the images it is for."""

    accuracy: float
    low: float
    high: float
    of: str


@dataclass(frozen=True)
class Design:
    """How the images were picked: path -> (why, weight), for every image that was to be labelled.

    ``probabilities``: path -> (probability that the model is right, the mean of it over the images that this one
    represents), which a design of an earlier version does not have.
    """

    images: Mapping[str, tuple[str, float]]
    probabilities: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Number of images in the whole target: the sum of all weights."""
        return sum(weight for _, weight in self.images.values())


def wilson(right: int, count: int, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a proportion; [0, 1] without images."""
    if count == 0:
        return 0.0, 1.0
    return wilson_interval(right / count, count, level)


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
    drawn = [path for path, (why, _) in design.images.items() if why == DRAWN and path in right]
    remaining = design.total - len(chosen)
    if not drawn and remaining > 0.5:
        return None
    share, low, high = _measure_drawn([right[path] for path in drawn], design, drawn, round(remaining))
    missing = len(chosen) - len(known)
    guess = sum(known) + missing * (sum(known) / len(known) if known else share)
    return SampledAccuracy(
        accuracy=(guess + remaining * share) / design.total,
        low=(sum(known) + remaining * low) / design.total,
        high=(sum(known) + missing + remaining * high) / design.total,
        of=f"all {round(design.total)} target images, from {len(known)} chosen and {len(drawn)} drawn at random",
    )


def _measure_drawn(right: list[bool], design: Design, drawn: list[str], images: int) -> tuple[float, float, float]:
    """(accuracy, low, high) of the images that were not chosen, from a random sample of them."""
    if not drawn:
        return 0.0, 0.0, 0.0
    if all(path in design.probabilities for path in drawn):
        known = [design.probabilities[path] for path in drawn]
        return prediction_powered(right, [own for own, _ in known], known[0][1], images, LEVEL)
    return sum(right) / len(right), *wilson(sum(right), len(right))


def read_design(labels: Path, root: str | Path | None = None) -> Design | None:
    """The design next to a table of labels, its paths located like those of the labels; None if there is none."""
    path = labels.parent / DESIGN
    if not (labels.is_file() and path.is_file()):
        return None
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path), newline="")))
        places = locate([row["path"] for row in rows], path, root)
        known = [(row["why"], float(row["weight"])) for row in rows]
        has_probabilities = all("mean_probability" in row for row in rows)
        probabilities = [(float(r["probability"]), float(r["mean_probability"])) for r in rows if has_probabilities]
    except (KeyError, TypeError, ValueError, csv.Error):
        raise DataError(
            f"{one_line(path)}: not the file that label-these wrote: restore that file, or remove this one."
        ) from None
    named = dict(zip(places, probabilities, strict=True)) if has_probabilities else {}
    return Design(dict(zip(places, known, strict=True)), named)


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
