"""Point at images, get a domain: class folders, unlabelled folders, lists, tables, Hugging Face datasets.

The order of the images is the order of their sorted paths, whatever they were read from; a target's folders have no
say in it, as they may be labels. The order of the
classes is that of the classes file if there is one, of the ids if the labels are ids, else of the alphabet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.reading.classes import (
    Match,
    are_ids,
    difference,
    match_classes,
    names_by_classes,
    names_by_folders,
    read_classes,
    refuse_labels,
    refuse_unlabelled_folders,
    some,
    sort_classes,
)
from pmtrans.data.reading.layouts import Request, known_suffixes, layout_of, located_rows
from pmtrans.data.reading.listing import Listing
from pmtrans.data.reading.order import label_free_order
from pmtrans.errors import DataError, one_line


@dataclass(frozen=True)
class Target:
    """A target: what training may see, and, apart from it, the labels that only evaluation may see.

    ``labelled`` holds the images whose class the source has, labels in the SOURCE's class order; it is None
    when there are no labels. ``unknown_classes``: names the source does not have, and their counts.
    """

    domain: Domain
    labelled: LabelledDomain | None
    warnings: tuple[str, ...]
    unknown_classes: tuple[tuple[str, int], ...] = ()


def read_source(
    spec: str | Path,
    *,
    root: str | Path | None = None,
    classes: str | Path | Sequence[str] | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
) -> LabelledDomain:
    """The labelled images of a class folder, list, table or dataset. ``classes`` fixes names and order."""
    listing = _read(spec, root, path_column, label_column, labels_required=True)
    refuse_unlabelled_folders(listing)
    labels = [row.label or "" for row in listing.rows]
    if classes is not None:
        known = read_classes(classes)
        named = names_by_classes(listing, known)
        index = match_classes(named.values(), known).index
        stray = {label for label, name in named.items() if name not in index}
        refuse_labels(listing, stray, f"no class of the classes file ({some(known)})")
        numbers = {label: index[name] for label, name in named.items()}
    else:
        named = names_by_folders(listing)
        known = tuple(named[label] for label in sort_classes(named))
        numbers = {label: known.index(name) for label, name in named.items()}
    if len(set(numbers.values())) < 2:
        only = one_line(known[0]) if classes is None else some(named.values())
        raise DataError(f"{one_line(listing.origin)}: only one class, {only!r}; a source needs at least two")
    paths = tuple(row.path for row in listing.rows)
    return LabelledDomain(listing.origin, paths, tuple(numbers[label] for label in labels), known)


def read_target(
    spec: str | Path,
    source_classes: Sequence[str],
    *,
    root: str | Path | None = None,
    classes: str | Path | Sequence[str] | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
) -> Target:
    """The images of a target, and its labels if it has any, matched with the source's classes by name.

    ``classes`` says what the target's own ids mean. Images of classes that the source does not have stay in
    ``domain`` and are left out of ``labelled``.
    """
    listing = _read(spec, root, path_column, label_column, labels_required=False)
    paths = [row.path for row in listing.rows]
    order = range(len(paths)) if listing.written else label_free_order(paths)
    domain = Domain(listing.origin, tuple(paths[position] for position in order))
    counts = Counter(row.label for row in listing.rows if row.label is not None)
    if not counts:
        return Target(domain, None, ())

    if classes is not None:
        known = read_classes(classes)
        named = names_by_classes(listing, known)
        if listing.written:
            beyond = {label for label in counts if are_ids([label]) and named[label] not in known}
            refuse_labels(listing, beyond, f"no id of the classes file (0 to {len(known) - 1})")
    elif are_ids(source_classes):
        named = {label: label for label in counts}
    else:
        named = names_by_folders(listing)
    match = match_classes(named.values(), source_classes)
    if not match.index:
        gap = difference(named.values(), source_classes)
        if listing.written:
            raise DataError(f"{one_line(listing.origin)}: no label is a class of the source: {gap}")
        return Target(domain, None, (f"target read as unlabelled, as no folder is a class: {gap}",))

    known_rows = [
        (row.path, match.index[named[row.label]])
        for row in listing.rows
        if row.label is not None and named[row.label] in match.index
    ]
    known_paths, labels = zip(*known_rows, strict=True)
    labelled = LabelledDomain(listing.origin, known_paths, labels, tuple(source_classes))
    names = (named[row.label] for row in listing.rows if row.label is not None)
    unknown = Counter(name for name in names if name in match.unknown)
    warnings = _warnings(listing, unknown, match, source_classes)
    return Target(domain, labelled, warnings, tuple(sorted(unknown.items())))


def _warnings(listing: Listing, unknown: Counter[str], match: Match, source_classes: Sequence[str]) -> tuple[str, ...]:
    warnings = []
    if match.forgiven:
        pairs = some(f"{found!r} is {known!r}" for found, known in match.forgiven.items())
        warnings.append(f"target classes matched in spite of case or separators: {pairs}")
    if unknown:
        warnings.append(
            f"target holds {unknown.total()} images of {len(unknown)} classes unknown to the source "
            f"({some(sort_classes(unknown))}): they are trained on, and left out of evaluation"
        )
    present = set(match.index.values())
    missing = [name for number, name in enumerate(source_classes) if number not in present]
    if missing:
        warnings.append(f"target has no image of {len(missing)} source classes: {some(missing)}")
    unlabelled = sum(row.label is None for row in listing.rows)
    if unlabelled:
        warnings.append(f"target holds {unlabelled} images without a label: they are left out of evaluation")
    return tuple(warnings)


def _read(
    spec: str | Path,
    root: str | Path | None,
    path_column: str | None,
    label_column: str | None,
    labels_required: bool,
) -> Listing:
    path = Path(spec)
    layout = layout_of(path)
    if layout is None and not path.exists():
        raise DataError(f"{one_line(path)}: there is no such folder or file")
    if layout is None:
        raise DataError(f"{one_line(path)}: neither a folder nor a list or table ({known_suffixes()})")
    rows = located_rows(layout, path, Request(labels_required, path_column, label_column), root)
    if not rows:
        raise DataError(f"{one_line(path)}: no image in this file")
    return Listing(path, sorted(rows, key=lambda row: row.path), layout.written)
