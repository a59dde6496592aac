"""Labels of a few target images, which a user gives on purpose: read only for ``--target-labels``.

A table (columns ``path`` and ``label``), a list, or class folders of copies whose file names are those of the target.
A path is absolute, or relative to the target folder, to the table, or to ``root``. A row without a label says nothing.

Where the target is open, the label ``unknown`` says that an image belongs to no class of the source.

A part of the labels is drawn and kept for measuring: what is trained on cannot measure. The draw depends on the seed
and on each image's own name, not on the other labels, so that labels which are added later do not change sides.
"""

from __future__ import annotations

import csv
import io
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pmtrans.addresses import as_path
from pmtrans.data.domain import UNKNOWN, Domain, LabelledDomain, subset
from pmtrans.data.reading.classes import abbreviate, match_classes, names_by_classes, read_classes
from pmtrans.data.reading.layouts import Request, known_suffixes, layout_of
from pmtrans.data.reading.listing import Listing, MalformedLines, Row, read_text
from pmtrans.data.sampling import random_seed
from pmtrans.errors import DataError, nearest, one_line

DESIGN = "design.csv"  # beside the labels: how ``label-these`` picked the images
CHOSEN, DRAWN = "chosen", "drawn"
LEAST_LABELS = 20  # with fewer, all are trained on: a handful measures nothing
LEAST_KEPT = 5


@dataclass(frozen=True)
class TargetLabels:
    """``trained``: labels that train. ``kept``: labels that measure, and that no training sees (may be empty).

    ``unknown``: images of an open target that belong to no known class.
    """

    trained: LabelledDomain
    kept: LabelledDomain
    unknown: Domain

    def within(self, target: Domain) -> TargetLabels:
        """Without images that the target no longer has, as they cannot be read."""
        known = set(target.paths)
        trained, kept = (
            subset(part, (place for place, path in enumerate(part.paths) if path in known))
            for part in (self.trained, self.kept)
        )
        if not len(trained):
            raise DataError(f"--target-labels {one_line(trained.origin)}: none of its images can be read")
        unknown = tuple(path for path in self.unknown.paths if path in known)
        return TargetLabels(trained, kept, Domain(self.unknown.origin, unknown))


def read_target_labels(
    spec: str | Path,
    target: Domain,
    source_classes: Sequence[str],
    *,
    kept_share: float,
    seed: int,
    root: str | Path | None = None,
    classes: str | Path | Sequence[str] | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    is_open: bool = False,
) -> TargetLabels:
    """The labels, matched with the source's classes by name; every image must be one of the target's.

    ``is_open``: the label ``unknown`` may be given.
    """
    path = as_path(spec)
    layout = layout_of(path)
    if layout is None:
        what = (
            "there is no such folder or file"
            if not path.exists()
            else f"not a folder, list or table ({known_suffixes()})"
        )
        raise DataError(f"--target-labels {one_line(path)}: {what}")
    rows = [row for row in layout.read(path, Request(False, path_column, label_column)) if row.label is not None]
    if not rows:
        raise DataError(f"--target-labels {one_line(path)}: no label in it")
    listing = Listing(path, rows, layout.explicit_labels)
    numbers = _numbers(listing, source_classes, classes, is_open)
    given = _by_image(listing, numbers, target, root)
    places = sorted(place for place, number in given.items() if number >= 0)
    if not places:
        raise DataError(f"--target-labels {one_line(path)}: no label but {UNKNOWN!r}: give some of known classes too")
    unknown = Domain(path, tuple(target.paths[place] for place in sorted(given.keys() - set(places))))
    labelled = LabelledDomain(
        Domain(path, tuple(target.paths[place] for place in places)),
        tuple(given[place] for place in places),
        tuple(source_classes),
    )
    return TargetLabels(*_divide(labelled, _drawn_names(path), kept_share, seed), unknown)


def _numbers(
    listing: Listing, source_classes: Sequence[str], classes: str | Path | Sequence[str] | None, is_open: bool
) -> dict[str, int]:
    """Label as written -> class, -1 for ``unknown`` in an open target; others are refused with their lines."""
    labels = {row.label for row in listing.rows if row.label is not None}
    named = {label: label for label in labels}
    if classes is not None:
        named = names_by_classes(listing, read_classes(classes))
    index = match_classes(named.values(), source_classes).index
    if is_open:
        index = {UNKNOWN: -1, **index}
    unknown = [row for row in listing.rows if named[row.label or ""] not in index]
    if unknown:
        known = f"the source has {abbreviate(source_classes)}"
        _refuse(
            listing,
            unknown,
            lambda row: (
                f"{row.label!r} is a label for data.target_classes=open only"
                if row.label == UNKNOWN
                else f"{row.label!r} is not a class{_meant(row.label or '', source_classes)}"
            ),
            known,
        )
    return {label: index[named[label]] for label in labels}


def _meant(label: str, classes: Sequence[str]) -> str:
    hint = nearest(label, classes)
    return f".{hint}" if hint else ""


def _by_image(listing: Listing, numbers: dict[str, int], target: Domain, root: str | Path | None) -> dict[int, int]:
    """Place in the target -> class; refused: images that are not in the target, and two labels for one image."""
    find = _Finder(target, listing.origin, root)
    given: dict[int, int] = {}
    first: dict[int, Row] = {}
    lost: list[Row] = []
    contradicting: list[tuple[Row, Row]] = []
    for row in listing.rows:
        places = find.places(row.path)
        lost += [] if places else [row]
        for place in places:
            if given.setdefault(place, numbers[row.label or ""]) != numbers[row.label or ""]:
                contradicting.append((row, first[place]))
            first.setdefault(place, row)
    if lost:
        _refuse(
            listing,
            lost,
            lambda row: f"{one_line(_own_name(row.path), 80)} is not an image of the target",
            one_line(target.origin),
        )
    if contradicting:
        before = {id(row): other for row, other in contradicting}
        _refuse(
            listing,
            [row for row, _ in contradicting],
            lambda row: (
                f"{row.label!r} for {one_line(_own_name(row.path), 60)}, before it was {before[id(row)].label!r}"
            ),
        )
    return given


class _Finder:
    """Where in the target a path of the labels is."""

    def __init__(self, target: Domain, labels: Path, root: str | Path | None) -> None:
        self._folder = target.origin if target.origin.is_dir() else target.origin.parent
        self._bases = [base for base in (self._folder, root, labels.parent, Path.cwd()) if base is not None]
        self._by_path: dict[str, list[int]] = defaultdict(list)
        self._by_name: dict[str, list[int]] = defaultdict(list)
        self._is_folder = labels.is_dir()
        for place, path in enumerate(target.paths):
            self._by_path[os.path.realpath(path)].append(place)
            self._by_name[os.path.basename(path)].append(place)

    def places(self, path: str) -> list[int]:
        """The places of one image (a list may name it several times); copies in class folders are found by name."""
        path = path.replace("\\", "/") if "/" not in path else path  # written on Windows
        for base in self._bases:
            found = self._by_path.get(os.path.realpath(os.path.join(base, path)))
            if found:
                return found
        named = self._by_name.get(os.path.basename(path), []) if self._is_folder else []
        return named if len(named) == 1 else []


def _refuse(listing: Listing, rows: Sequence[Row], why: Callable[[Row], str], more: str = "") -> None:
    ending = f" ({more})" if more else ""
    if listing.explicit_labels:
        raise MalformedLines(listing.origin, ((row.line, why(row) + ending) for row in rows))
    others = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    raise DataError(f"{one_line(listing.origin)}: {why(rows[0])}{ending}{others}")


def _drawn_names(labels: Path) -> set[str] | None:
    """Of a table that ``label-these`` wrote the images that were drawn at random; None: no design is known."""
    design = labels.parent / DESIGN
    if not (labels.is_file() and design.is_file()):
        return None
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(design), newline="")))
        return {_own_name(row["path"]) for row in rows if row["why"] == DRAWN}
    except (KeyError, TypeError, csv.Error):
        raise DataError(
            f"{one_line(design)}: not the file that label-these wrote: restore that file, or remove this one."
        ) from None


def _divide(
    labelled: LabelledDomain, drawn: set[str] | None, share: float, seed: int
) -> tuple[LabelledDomain, LabelledDomain]:
    """(those that train, those that are kept).

    Only images that were drawn at random can measure: those that were chosen are the difficult ones.
    """
    lots = [random_seed(seed, "target labels", _own_name(path)) / 2**63 for path in labelled.paths]
    eligible = [place for place, path in enumerate(labelled.paths) if drawn is None or _own_name(path) in drawn]
    kept: list[int] = []
    if share and len(labelled) >= LEAST_LABELS:
        eligible.sort(key=lambda place: lots[place])
        below = sum(lots[place] < share for place in eligible)
        kept = sorted(eligible[: max(below, LEAST_KEPT)])
    if len(kept) == len(labelled):
        kept = kept[:-1]
    left = set(range(len(labelled))) - set(kept)
    return subset(labelled, sorted(left)), subset(labelled, kept)


def _own_name(path: str) -> str:
    """What of a path stays the same when the target moves."""
    return "/".join(path.replace(os.sep, "/").split("/")[-2:])


def own_names(images: Domain | LabelledDomain) -> Iterator[str]:
    """Names by which the labelled images of two runs can be compared."""
    return map(_own_name, images.paths)
