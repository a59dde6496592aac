"""Point at images, get a domain: class folders, unlabelled folders, lists, tables, Hugging Face datasets.

The order of the images is the order of their sorted paths, whatever they were read from. The order of the
classes is that of the classes file if there is one, of the ids if the labels are ids, else of the alphabet.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pmtrans.data.classes import are_ids, match_classes, read_classes, some, sort_classes
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.folders import read_folder
from pmtrans.data.huggingface import is_huggingface_dataset, read_huggingface_dataset
from pmtrans.data.lists import read_list
from pmtrans.data.locate import locate
from pmtrans.data.rows import Listing, MalformedLines, Row
from pmtrans.data.tables import read_table
from pmtrans.errors import DataError, one_line

LIST_SUFFIXES = (".txt", ".lst", ".list")
TABLE_SUFFIXES = (".csv", ".tsv", ".tab", ".parquet", ".pq")
_SPLITS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})


@dataclass(frozen=True)
class Target:
    """A target: what training may see, and, apart from it, the labels that only evaluation may see.

    ``labelled`` holds the images whose class the source has, labels in the SOURCE's class order; it is None
    when there are no labels.
    """

    domain: Domain
    labelled: LabelledDomain | None
    warnings: tuple[str, ...]


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
    _refuse_unlabelled_folders(listing)
    labels = [row.label or "" for row in listing.rows]
    if classes is not None:
        known = read_classes(classes)
        named = _named(listing, known)
        index = match_classes(named.values(), known).index
        stray = {label for label, name in named.items() if name not in index}
        _refuse(listing, stray, f"no class of the classes file ({some(known)})")
        numbers = {label: index[name] for label, name in named.items()}
    else:
        named = _named_by_folders(listing)
        known = tuple(named[label] for label in sort_classes(named))
        numbers = {label: known.index(name) for label, name in named.items()}
    if len(numbers) < 2:
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
    domain = Domain(listing.origin, tuple(row.path for row in listing.rows))
    counts = Counter(row.label for row in listing.rows if row.label is not None)
    if not counts:
        return Target(domain, None, ())

    if classes is not None:
        known = read_classes(classes)
        named = _named(listing, known)
        beyond = {label for label in counts if are_ids([label]) and named[label] not in known}
        _refuse(listing, beyond, f"no id of the classes file (0 to {len(known) - 1})")
    elif are_ids(source_classes):
        named = {label: label for label in counts}
    else:
        named = _named_by_folders(listing)
    match = match_classes(named.values(), source_classes)
    if not match.index:
        difference = _difference(named.values(), source_classes)
        if listing.written:
            raise DataError(f"{one_line(listing.origin)}: no label is a class of the source: {difference}")
        return Target(domain, None, (f"target read as unlabelled, as no folder is a class: {difference}",))

    warnings = []
    if match.forgiven:
        pairs = some(f"{found!r} is {known!r}" for found, known in match.forgiven.items())
        warnings.append(f"target classes matched in spite of case or separators: {pairs}")
    if match.unknown:
        images = sum(count for label, count in counts.items() if named[label] in match.unknown)
        warnings.append(
            f"target holds {images} images of {len(match.unknown)} classes unknown to the source "
            f"({some(match.unknown)}): they are trained on, and left out of evaluation"
        )
    missing = [name for i, name in enumerate(source_classes) if i not in set(match.index.values())]
    if missing:
        warnings.append(f"target has no image of {len(missing)} source classes: {some(missing)}")
    pairs_known = [
        (row.path, match.index[named[row.label]])
        for row in listing.rows
        if row.label is not None and named[row.label] in match.index
    ]
    paths, labels = zip(*pairs_known, strict=True)
    return Target(
        domain, LabelledDomain(listing.origin, paths, labels, tuple(source_classes)), tuple(warnings)
    )


def _read(
    spec: str | Path,
    root: str | Path | None,
    path_column: str | None,
    label_column: str | None,
    labels_required: bool,
) -> Listing:
    path = Path(spec)
    suffix = path.suffix.lower()
    if path.is_dir():
        if not is_huggingface_dataset(path):
            return read_folder(path)
        rows = read_huggingface_dataset(path, path_column, label_column, labels_required)
    elif not path.exists():
        raise DataError(f"{one_line(path)}: there is no such folder or file")
    elif suffix in LIST_SUFFIXES:
        rows = read_list(path, labels_required)
    elif suffix in TABLE_SUFFIXES:
        rows = read_table(path, labels_required, path_column, label_column)
    else:
        kinds = ", ".join((*LIST_SUFFIXES, *TABLE_SUFFIXES))
        raise DataError(f"{one_line(path)}: neither a folder nor a list or table ({kinds})")
    if not rows:
        raise DataError(f"{one_line(path)}: no image in this file")
    located = locate([row.path for row in rows], path, root) if path.is_file() else [row.path for row in rows]
    placed = [Row(row.line, place, row.label) for row, place in zip(rows, located, strict=True)]
    return Listing(path, sorted(placed, key=lambda row: row.path), written=True)


def _named(listing: Listing, known: Sequence[str]) -> dict[str, str]:
    """What each label is called, when a classes file says what ids mean."""
    labels = {row.label for row in listing.rows if row.label is not None}
    index = match_classes(labels, known).index
    named = {}
    for label in labels:
        is_valid_id = are_ids([label]) and int(label) < len(known)
        named[label] = known[index[label]] if label in index else known[int(label)] if is_valid_id else label
    return named


def _named_by_folders(listing: Listing) -> dict[str, str]:
    """What each label is called: itself; for a list of ids, the folder if each id has one of its own.

    The lists of the UDA benchmarks are of this kind (``amazon/images/bike/1.jpg 1``). Names show when two
    lists number the same classes differently; ids alone would be matched wrongly, in silence.
    """
    labels = {row.label for row in listing.rows if row.label is not None}
    named = {label: label for label in labels}
    if not listing.written or not are_ids(labels) or len(labels) < 2:
        return named
    folders: dict[str, set[str]] = defaultdict(set)
    for row in listing.rows:
        if row.label is not None:
            folders[row.label].add(Path(row.path).parent.name)
    names = {label: next(iter(found)) for label, found in folders.items() if len(found) == 1}
    return names if len(names) == len(set(names.values())) == len(labels) else named


def _refuse_unlabelled_folders(listing: Listing) -> None:
    if listing.written:
        return
    bare = [row.path for row in listing.rows if row.label is None]
    origin = one_line(listing.origin)
    if len(bare) == len(listing.rows):
        raise DataError(f"{origin}: a source needs a folder per class, but its images lie in no folder")
    if bare:
        raise DataError(
            f"{origin}: {len(bare)} images lie beside the class folders, such as {one_line(bare[0])}: "
            "a source needs a class for each, move them"
        )
    _refuse_folders_of_domains(listing)


def _refuse_folders_of_domains(listing: Listing) -> None:
    """One level too high: ``office31`` or a folder of splits, whose folders are no classes but hold them."""
    below: dict[str, set[str]] = defaultdict(set)
    for row in listing.rows:
        label = row.label or ""
        after = row.path.rpartition(f"{os.sep}{label}{os.sep}")[2].split(os.sep)
        below[label].add(after[0] if len(after) > 1 else "")
    nested = all("" not in names for names in below.values())
    same = (
        len(below) > 1
        and len(set(map(frozenset, below.values()))) == 1
        and len(next(iter(below.values()))) > 1
    )
    if nested and (same or below.keys() <= _SPLITS):
        raise DataError(
            f"{one_line(listing.origin)}: its folders ({some(sorted(below))}) are no classes but hold the "
            "class folders: point at one of them"
        )


def _refuse(listing: Listing, labels: set[str], why: str) -> None:
    if not labels:
        return
    rows = [row for row in listing.rows if row.label in labels]
    if listing.written:
        raise MalformedLines(listing.origin, ((row.line, f"{row.label!r} is {why}") for row in rows))
    raise DataError(f"{one_line(listing.origin)}: {some(sort_classes(labels))}: {why}")


def _difference(found: Iterable[str], source_classes: Sequence[str]) -> str:
    names = sort_classes(found)
    mend = ""
    if are_ids(names) != are_ids(source_classes):
        mend = "; one has ids, the other names: say by a classes file which is which"
    return f"it has {some(names)}, the source has {some(source_classes)}{mend}"
