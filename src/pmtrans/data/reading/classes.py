"""Class names: read from a file, and matched between two domains by name.

What labels mean: names behind ids, folders that are no classes, labels that no class has.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pmtrans.data.reading.listing import Listing, MalformedLines, read_text
from pmtrans.errors import DataError, one_line


def read_classes(classes: str | Path | Sequence[str]) -> tuple[str, ...]:
    """Class names in order: given, or from a file with one name a line (or a JSON list). Line 1 is id 0."""
    origin = "classes"
    if isinstance(classes, (str, Path)):
        origin = one_line(classes)
        names = _from_file(Path(classes))
    else:
        names = list(classes)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{origin}: each class once, but {some(repeated)} is there twice")
    if len(names) < 2:
        raise DataError(f"{origin}: {len(names)} class names, at least 2 are needed")
    return tuple(names)


def _from_file(path: Path) -> list[str]:
    text = read_text(path)
    if path.suffix.lower() != ".json":
        return [name for line in text.split("\n") if (name := line.strip())]
    try:
        names = json.loads(text)
    except ValueError as error:
        raise DataError(f"{one_line(path)}: not JSON ({error})") from None
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise DataError(f"{one_line(path)}: a JSON list of class names is needed")
    return names


@dataclass(frozen=True)
class Match:
    """Which known class each found name is: ``index`` by found name, and what had to be forgiven."""

    index: dict[str, int]
    forgiven: dict[str, str]  # found name -> known name, equal but for case and separators
    unknown: tuple[str, ...]


def match_classes(found: Iterable[str], known: Sequence[str]) -> Match:
    """Found names matched with known ones: exactly, or but for case and separators if unambiguous."""
    names = sort_classes(found)
    exact = {name: position for position, name in enumerate(known)}
    index = {name: exact[name] for name in names if name in exact}
    candidates, rivals = defaultdict[str, list[int]](list), defaultdict[str, list[str]](list)
    for position, name in enumerate(known):
        candidates[plain_name(name)].append(position)
    for name in names:
        rivals[plain_name(name)].append(name)
    forgiven = {}
    for name in names:
        positions = candidates[plain_name(name)]
        if name not in index and len(positions) == 1 and len(rivals[plain_name(name)]) == 1:
            index[name] = positions[0]
            forgiven[name] = known[positions[0]]
    return Match(index, forgiven, tuple(name for name in names if name not in index))


def sort_classes(names: Iterable[str]) -> list[str]:
    """Class names in their natural order: ids by number, names by letter."""
    distinct = sorted(set(names))
    return sorted(distinct, key=int) if are_ids(distinct) else distinct


def are_ids(names: Iterable[str]) -> bool:
    """Whether all of these are numbers, not names."""
    return all(re.fullmatch(r"[0-9]{1,9}", name) for name in names)


def some(names: Iterable[str], limit: int = 5) -> str:
    """A few names for a message: ``a, b, c ... (31 in all)``."""
    listed = list(names)
    shown = ", ".join(one_line(name, 60) for name in listed[:limit])
    return shown if len(listed) <= limit else f"{shown} ... ({len(listed)} in all)"


def plain_name(name: str) -> str:
    """A name without case and separators, a number without leading zeros."""
    plain = re.sub(r"[\W_]+", "", name).casefold()
    return str(int(plain)) if re.fullmatch(r"[0-9]{1,9}", plain) else plain


_SPLITS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})


def names_by_classes(listing: Listing, known: Sequence[str]) -> dict[str, str]:
    """What each label is called, when a classes file says what ids mean."""
    labels = {row.label for row in listing.rows if row.label is not None}
    index = match_classes(labels, known).index
    named = {}
    for label in labels:
        is_valid_id = are_ids([label]) and int(label) < len(known)
        named[label] = known[index[label]] if label in index else known[int(label)] if is_valid_id else label
    return named


def names_by_folders(listing: Listing) -> dict[str, str]:
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


def refuse_unlabelled_folders(listing: Listing) -> None:
    """Images of a source folder must each lie in a class folder."""
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
    same = len(below) > 1 and len(set(map(frozenset, below.values()))) == 1 and len(next(iter(below.values()))) > 1
    if nested and (same or below.keys() <= _SPLITS):
        raise DataError(
            f"{one_line(listing.origin)}: its folders ({some(sorted(below))}) are no classes but hold the "
            "class folders: point at one of them"
        )


def refuse_labels(listing: Listing, labels: set[str], why: str) -> None:
    """Labels that cannot stand, each with its line if they were written."""
    if not labels:
        return
    rows = [row for row in listing.rows if row.label in labels]
    if listing.written:
        raise MalformedLines(listing.origin, ((row.line, f"{row.label!r} is {why}") for row in rows))
    raise DataError(f"{one_line(listing.origin)}: {some(sort_classes(labels))}: {why}")


def difference(found: Iterable[str], source_classes: Sequence[str]) -> str:
    """The labels of a target beside the classes of the source, for a message."""
    names = sort_classes(found)
    mend = ""
    if are_ids(names) != are_ids(source_classes):
        mend = "; one has ids, the other names: say by a classes file which is which"
    return f"it has {some(names)}, the source has {some(source_classes)}{mend}"
