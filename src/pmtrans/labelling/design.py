"""``design.csv``: how the images to label came about, found again beside the table of their labels."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pmtrans.data.locate import locate
from pmtrans.data.rows import read_text
from pmtrans.errors import DataError, one_line
from pmtrans.labelling.accuracy import Design, Measured, measure_designed, measure_plain

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
