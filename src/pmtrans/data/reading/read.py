"""Read a domain from class folders, unlabelled folders, lists, tables or Hugging Face datasets.

Images of a source are sorted by path; those of a target, whatever it is read from, in an order that does not depend on
its folders, which may be labels. Classes have the order of the classes file if there is one; otherwise ids are in
numeric order, names in alphabetical order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pmtrans.addresses import as_path
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.packed import name_below
from pmtrans.data.reading.classes import (
    Match,
    abbreviate,
    are_ids,
    describe_mismatch,
    describe_misspelt,
    look_at_twins,
    match_classes,
    names_by_classes,
    names_by_folders,
    read_classes,
    refuse_labels,
    refuse_unlabelled_folders,
    sort_classes,
)
from pmtrans.data.reading.layouts import Request, known_suffixes, layout_of, located_rows
from pmtrans.data.reading.listing import Listing
from pmtrans.data.reading.order import unlabelled
from pmtrans.errors import DataError, one_line


@dataclass(frozen=True)
class Target:
    """A target: ``domain`` for training, and separately ``labelled`` for evaluation only.

    ``labelled`` holds the images whose class the source has, with labels in the SOURCE's class order; it is None
    without labels. ``unknown_classes``: classes that the source does not have, and their counts; ``unknown_paths``:
    the images of these.
    """

    domain: Domain
    labelled: LabelledDomain | None
    warnings: tuple[str, ...]
    unknown_classes: tuple[tuple[str, int], ...] = ()
    unknown_paths: tuple[str, ...] = ()


def read_source(
    spec: str | Path,
    *,
    root: str | Path | None = None,
    classes: str | Path | Sequence[str] | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    least_classes: int = 2,
) -> LabelledDomain:
    """Read labelled images from class folders, a list, a table or a dataset. ``classes`` fixes names and order.

    ``least_classes``: one of several sources may have a single class.
    """
    listing = _read(spec, root, path_column, label_column, labels_required=True)
    refuse_unlabelled_folders(listing)
    labels = [row.label or "" for row in listing.rows]
    doubts = listing.warnings
    if classes is not None:
        known = read_classes(classes)
        named = names_by_classes(listing, known)
        index = match_classes(named.values(), known).index
        invalid = {label for label, name in named.items() if name not in index}
        refuse_labels(listing, invalid, f"not in the classes file ({abbreviate(known)})")
        numbers = {label: index[name] for label, name in named.items()}
    else:
        named = names_by_folders(listing)
        known = tuple(named[label] for label in sort_classes(named))
        position = {name: number for number, name in enumerate(known)}
        numbers = {label: position[name] for label, name in named.items()}
        doubts += look_at_twins(listing.origin, known)
    if len(set(numbers.values())) < least_classes:
        only = one_line(known[0]) if classes is None else abbreviate(named.values())
        raise DataError(f"{one_line(listing.origin)}: only one class, {only!r}; a source needs at least two")
    images = Domain(listing.origin, tuple(row.path for row in listing.rows))
    return LabelledDomain(images, tuple(numbers[label] for label in labels), known, warnings=doubts)


def read_target(
    spec: str | Path,
    source_classes: Sequence[str],
    *,
    root: str | Path | None = None,
    classes: str | Path | Sequence[str] | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
    trained_on: bool = True,
) -> Target:
    """Read a target and, if it has labels, match them with the source's classes by name.

    ``trained_on``: whether these images will be trained on, or are only evaluated; for the warnings. ``classes``
    names the target's own ids. Images of classes that the source does not have are in ``domain`` but not in
    ``labelled``.
    """
    listing = _read(spec, root, path_column, label_column, labels_required=False)
    domain = unlabelled(listing)
    counts = Counter(row.label for row in listing.rows if row.label is not None)
    if not counts:
        return Target(domain, None, listing.warnings)

    if classes is not None:
        known = read_classes(classes)
        named = names_by_classes(listing, known)
        if listing.explicit_labels:
            own = set(known)
            invalid = {label for label in counts if are_ids([label]) and named[label] not in own}
            refuse_labels(listing, invalid, f"not an id of the classes file (0 to {len(known) - 1})")
    elif are_ids(source_classes):
        named = {label: label for label in counts}
    else:
        named = names_by_folders(listing)
    match = match_classes(named.values(), source_classes)
    if not match.index:
        mismatch = describe_mismatch(named.values(), source_classes)
        if listing.explicit_labels:
            raise DataError(f"{one_line(listing.origin)}: no label matches a class of the source: {mismatch}")
        unlike = f"target is treated as unlabelled, as none of its folders is a source class: {mismatch}"
        return Target(domain, None, (*listing.warnings, unlike))

    known_rows = [
        (row.path, match.index[named[row.label]])
        for row in listing.rows
        if row.label is not None and named[row.label] in match.index
    ]
    known_paths, labels = zip(*known_rows, strict=True)
    labelled = LabelledDomain(Domain(listing.origin, known_paths), labels, tuple(source_classes))
    names = (named[row.label] for row in listing.rows if row.label is not None)
    unknown = Counter(name for name in names if name not in match.index)
    warnings = _warnings(listing, unknown, match, source_classes, trained_on)
    strange = tuple(row.path for row in listing.rows if row.label is not None and named[row.label] not in match.index)
    return Target(domain, labelled, warnings, tuple(sorted(unknown.items())), strange)


def _warnings(
    listing: Listing, unknown: Counter[str], match: Match, source_classes: Sequence[str], trained_on: bool
) -> tuple[str, ...]:
    warnings = [*listing.warnings]
    present = set(match.index.values())
    missing = [name for number, name in enumerate(source_classes) if number not in present]
    if match.inexact:
        pairs = abbreviate(f"{found!r} is {known!r}" for found, known in match.inexact.items())
        warnings.append(f"target classes matched ignoring case and separators: {pairs}")
    if unknown:
        use = "used for training, left out of evaluation" if trained_on else "left out of evaluation"
        warnings.append(
            f"target has {unknown.total()} images of {len(unknown)} classes unknown to the source "
            f"({abbreviate(sort_classes(unknown))}): {use}"
        )
        if misspelt := describe_misspelt(unknown, source_classes):
            warnings.append(misspelt)
    if missing:
        warnings.append(f"target has no images of {len(missing)} source classes: {abbreviate(missing)}")
    unlabelled = sum(row.label is None for row in listing.rows)
    if unlabelled:
        warnings.append(f"target has {unlabelled} images without a label: left out of evaluation")
    return tuple(warnings)


def _read(
    spec: str | Path,
    root: str | Path | None,
    path_column: str | None,
    label_column: str | None,
    labels_required: bool,
) -> Listing:
    path = as_path(spec)
    layout = layout_of(path)
    if layout is None and not path.exists():
        raise DataError(f"{one_line(path)}: there is no such folder or file")
    if layout is None:
        raise DataError(f"{one_line(path)}: not a folder, list or table ({known_suffixes()})")
    asked = Request(labels_required, path_column, label_column)
    rows = located_rows(layout, path, asked, root)
    if not rows:
        raise DataError(f"{one_line(path)}: no image in this file")
    if not labels_required:
        asked.left_out.found.pop("empty folders", None)  # folders of a target are no classes
    in_order = sorted(rows, key=lambda row: name_below(row.path))
    warnings = asked.left_out.warnings(path)
    return Listing(path, in_order, layout.explicit_labels, layout.numbered_names, warnings)
