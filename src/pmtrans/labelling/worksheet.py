"""The files that ``label-these`` writes: ``labels.csv`` to fill in, ``design.csv`` and the page ``index.html``.

The design has its own file, so that ``labels.csv`` has just two columns, path and label.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path

from pmtrans.addresses import absolute
from pmtrans.data.domain import UNKNOWN
from pmtrans.data.reading.target_labels import DESIGN
from pmtrans.errors import RunError, one_line
from pmtrans.files import write_text
from pmtrans.labelling.choice import Pick
from pmtrans.pages.document import render_document
from pmtrans.pages.thumbnails import data_uri, thumbnail
from pmtrans.progress import Reporter

LABELS, PAGE = "labels.csv", "index.html"
KEYS = "1234567890abcdefghijklmnopqrstuvwxyz"  # of the first classes; the names of further ones are typed
UNKNOWN_KEY = "-"


def write_folder(
    folder: Path,
    picks: Sequence[Pick],
    paths: Sequence[str],
    classes: Sequence[str],
    reporter: Reporter | None = None,
    is_open: bool = False,
) -> Path:
    """Write all three files; an existing ``labels.csv`` is never overwritten.

    ``is_open``: the page offers ``unknown`` beside the classes.
    """
    if (folder / LABELS).exists():
        raise RunError(f"{one_line(folder / LABELS)!r} exists and may hold labels: choose another --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"--out {one_line(folder)!r} cannot be made: {error.strerror}.") from None
    # Sorted by path, so that the order does not tell which images the model is uncertain of.
    ordered = sorted(picks, key=lambda pick: absolute(paths[pick.index]))
    places = [absolute(paths[pick.index]) for pick in ordered]
    rows = [
        (place, pick.why, *(f"{value:.9g}" for value in (pick.weight, pick.probability, pick.mean_probability)))
        for place, pick in zip(places, ordered, strict=True)
    ]
    write_text(folder / DESIGN, _table(("path", "why", "weight", "probability", "mean_probability"), rows))
    write_text(folder / PAGE, _page(places, classes, reporter or Reporter(quiet=True), is_open))
    write_text(folder / LABELS, _table(("path", "label"), [(place, "") for place in places]))
    return folder / LABELS


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()


def _page(places: Sequence[str], classes: Sequence[str], reporter: Reporter, is_open: bool) -> str:
    images = []
    with reporter.counted("images to label", len(places)) as finished_one:
        for place in places:
            name = one_line(os.path.basename(place), 80)
            images.append({"path": place, "name": name, "uri": data_uri(thumbnail(place, 160))})
            finished_one()
    keys = dict(zip(KEYS, classes, strict=False)) | ({UNKNOWN_KEY: UNKNOWN} if is_open else {})
    names = [*classes, *([UNKNOWN] if is_open else [])]
    return render_document("label_these.html", script="label_these.js", images=images, classes=names, keys=keys)
