"""Class names: read from a file, and matched between two domains by name."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pmtrans.data.rows import read_text
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
