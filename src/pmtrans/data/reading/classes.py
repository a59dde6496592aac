"""Class names: read from a file, resolved from ids and folders, and matched between two domains by name."""

from __future__ import annotations

import difflib
import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pmtrans.addresses import as_path
from pmtrans.data.packed import class_folder, packed_image
from pmtrans.data.reading.listing import Listing, MalformedLines, read_text
from pmtrans.errors import DataError, one_line
from pmtrans.texts import TextError, parse_json

_SPLITS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})
COMPARISONS = 200_000  # of two names, for hints: seconds of work
LONG_NAME = 200  # characters: whatever is longer is compared with nothing


def read_classes(classes: str | Path | Sequence[str]) -> tuple[str, ...]:
    """Class names in order, from a sequence or a file with one name per line (or a JSON list). Line 1 is id 0."""
    origin = "classes"
    if isinstance(classes, (str, Path)):
        origin = one_line(classes)
        names = _from_file(as_path(classes))
    else:
        names = list(classes)
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise DataError(f"{origin}: duplicate class names: {abbreviate(repeated)}")
    if len(names) < 2:
        raise DataError(f"{origin}: {len(names)} class names, but at least 2 are needed")
    return tuple(names)


def _from_file(path: Path) -> list[str]:
    text = read_text(path)
    if path.suffix.lower() != ".json":
        return [name for line in text.split("\n") if (name := line.strip())]
    try:
        names: list[str] = parse_json(text, list[str])
    except TextError as error:
        raise DataError(f"{one_line(path)}: expected a JSON list of class names ({error})") from None
    if not all(names):
        raise DataError(f"{one_line(path)}: expected a JSON list of class names")
    return names


@dataclass(frozen=True)
class Match:
    """Found class names matched with known ones: ``index`` maps a found name to the position of the known one."""

    index: dict[str, int]
    inexact: dict[str, str]  # found name -> known name, equal except for case and separators
    unknown: tuple[str, ...]


def match_classes(found: Iterable[str], known: Sequence[str]) -> Match:
    """Match found names with known ones: exactly, or ignoring case and separators if unambiguous."""
    names = sort_classes(found)
    exact = {name: position for position, name in enumerate(known)}
    index = {name: exact[name] for name in names if name in exact}
    candidates, rivals = defaultdict[str, list[int]](list), defaultdict[str, list[str]](list)
    for position, name in enumerate(known):
        candidates[normalised_name(name)].append(position)
    for name in names:
        rivals[normalised_name(name)].append(name)
    inexact = {}
    for name in names:
        positions = candidates[normalised_name(name)]
        if name not in index and len(positions) == 1 and len(rivals[normalised_name(name)]) == 1:
            index[name] = positions[0]
            inexact[name] = known[positions[0]]
    return Match(index, inexact, tuple(name for name in names if name not in index))


def names_by_classes(listing: Listing, known: Sequence[str]) -> dict[str, str]:
    """Label -> class name, where ids are positions in a classes file."""
    labels = {row.label for row in listing.rows if row.label is not None}
    index = match_classes(labels, known).index
    named = {}
    for label in labels:
        is_valid_id = are_ids([label]) and int(label) < len(known)
        named[label] = known[index[label]] if label in index else known[int(label)] if is_valid_id else label
    return named


def names_by_folders(listing: Listing) -> dict[str, str]:
    """Label -> class name: the label itself, or, in a list of ids, the folder if each id has its own.

    The lists of the UDA benchmarks are like this (``amazon/images/bike/1.jpg 1``). Names are needed because two lists
    may number the same classes differently; matching by id would then be silently wrong.
    """
    labels = {row.label for row in listing.rows if row.label is not None}
    named = {label: label for label in labels}
    if not listing.explicit_labels or not are_ids(labels) or len(labels) < 2:
        return named
    folders: dict[str, set[str]] = defaultdict(set)
    for row in listing.rows:
        if row.label is not None:
            folders[row.label].add(class_folder(row.path))
    if all(row.label is None or _is_packed_below(row.label, row.path) for row in listing.rows):
        return named  # ``pack`` wrote names of folders
    names = {label: next(iter(found)) for label, found in folders.items() if len(found) == 1}
    return names if len(names) == len(set(names.values())) == len(labels) else named


def _is_packed_below(label: str, path: str) -> bool:
    packed = packed_image(path)
    return packed is not None and label in packed.name.split("/")[:-1]


def refuse_unlabelled_folders(listing: Listing) -> None:
    """Every image of a source folder must be in a class folder."""
    if listing.explicit_labels:
        return
    unlabelled = [row.path for row in listing.rows if row.label is None]
    origin = one_line(listing.origin)
    if len(unlabelled) == len(listing.rows):
        raise DataError(f"{origin}: a source needs one folder per class, but its images are in no folder")
    if unlabelled:
        raise DataError(
            f"{origin}: {len(unlabelled)} images are outside the class folders, such as {one_line(unlabelled[0])}: "
            "move each into the folder of its class"
        )
    _refuse_folders_of_domains(listing)


def _refuse_folders_of_domains(listing: Listing) -> None:
    """Refuse a folder one level too high (``office31``, or a folder of splits), whose folders contain class folders."""
    below: dict[str, set[str]] = defaultdict(set)
    for row in listing.rows:
        label = row.label or ""
        after = row.path.rpartition(f"{os.sep}{label}{os.sep}")[2].split(os.sep)
        below[label].add(after[0] if len(after) > 1 else "")
    nested = all("" not in names for names in below.values())
    same = len(below) > 1 and len(set(map(frozenset, below.values()))) == 1 and len(next(iter(below.values()))) > 1
    if nested and (same or below.keys() <= _SPLITS):
        raise DataError(
            f"{one_line(listing.origin)}: its folders ({abbreviate(sorted(below))}) are not classes but contain "
            "class folders: give one of them"
        )


def refuse_labels(listing: Listing, labels: set[str], why: str) -> None:
    """Raise if there are invalid labels; from a list or table, with their lines."""
    if not labels:
        return
    rows = [row for row in listing.rows if row.label in labels]
    if listing.explicit_labels:
        raise MalformedLines(listing.origin, ((row.line, f"{row.label!r} is {why}") for row in rows))
    raise DataError(f"{one_line(listing.origin)}: {abbreviate(sort_classes(labels))}: {why}")


def look_at_twins(origin: Path, names: Sequence[str]) -> tuple[str, ...]:
    """A warning of names that differ in case or separators only; names that look the same are refused."""
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        alike[normalised_name(name)].append(name)
    twins = [group for group in alike.values() if len(group) > 1]
    for group in twins:
        shown = Counter(unicodedata.normalize("NFC", name) for name in group)
        if len(shown) < len(group):
            name = one_line(shown.most_common(1)[0][0])
            raise DataError(
                f"{one_line(origin)}: two classes are both called {name!r}, their accents written as one character or "
                "as two: make them one"
            )
    pairs = abbreviate(" and ".join(repr(one_line(name, 60)) for name in group) for group in twins)
    return (f"classes that differ in case or separators only: {pairs}: is each a class of its own?",) if twins else ()


def describe_mismatch(found: Iterable[str], source_classes: Sequence[str]) -> str:
    """For a message: the labels of a target, and the classes of the source that they do not match."""
    names = sort_classes(found)
    hint = ""
    if are_ids(names) != are_ids(source_classes):
        hint = "; one has ids, the other names: give a classes file that maps ids to names"
    return f"it has {abbreviate(names)}, the source has {abbreviate(source_classes)}{hint}"


def describe_misspelt(found: Iterable[str], known: Sequence[str]) -> str:
    """For a warning: names that differ from a known one by a slip of a finger, with what was probably meant.

    At most ``COMPARISONS`` pairs of names are compared; how many were not is part of the answer. Empty: nothing to say.
    """
    names, known = sort_classes(found), [name for name in known if len(name) <= LONG_NAME]
    compared = names[: COMPARISONS // max(1, len(known))]
    pairs = [(n, difflib.get_close_matches(n, known, n=1, cutoff=0.75)) for n in compared if len(n) <= LONG_NAME]
    misspelt = [f"{one_line(name, 60)!r} for {one_line(meant[0], 60)!r}" for name, meant in pairs if meant]
    said = [f"is it a misspelt class? {abbreviate(misspelt)}"] if misspelt else []
    if len(compared) < len(names):
        said.append(f"{len(names) - len(compared)} more unknown names are too many to look for misspelt ones")
    return "; ".join(said)


def sort_classes(names: Iterable[str]) -> list[str]:
    """Distinct class names in order: ids numerically, names alphabetically."""
    distinct = sorted(set(names))
    return sorted(distinct, key=int) if are_ids(distinct) else distinct


def are_ids(names: Iterable[str]) -> bool:
    """Whether all names are numeric ids."""
    return all(re.fullmatch(r"[0-9]{1,9}", name) for name in names)


def normalised_name(name: str) -> str:
    """A name in lower case without separators, accents as one character; a number without leading zeros.

    A name of separators alone, such as ``+``, stays what it is.
    """
    name = unicodedata.normalize("NFC", name)
    name = re.sub(r"[\W_]+", "", name).casefold() or name
    return str(int(name)) if re.fullmatch(r"[0-9]{1,9}", name) else name


def abbreviate(names: Iterable[str], limit: int = 5) -> str:
    """The first names for a message: ``a, b, c ... (31 in all)``."""
    listed = list(names)
    text = ", ".join(one_line(name, 60) for name in listed[:limit])
    return text if len(listed) <= limit else f"{text} ... ({len(listed)} in all)"
