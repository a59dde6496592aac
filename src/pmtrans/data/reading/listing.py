"""The rows of a folder, list or table before labels are mapped to classes: one per image."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pmtrans.data.image import is_image_name
from pmtrans.errors import DataError, one_line
from pmtrans.texts import LIST_BYTES, MAX_IMAGES, is_text, read_bytes

_MAX_EXAMPLES = 5


class Row(NamedTuple):
    """One image: its line or row number (0 in a folder), path and label."""

    line: int
    path: str
    label: str | None


@dataclass(frozen=True)
class Listing:
    """All rows of one domain. ``explicit_labels``: labels come from a list or table, so they are certainly classes;
    folder names may be anything. ``numbered_names``: file names are numbers of rows, and say what their order says."""

    origin: Path
    rows: list[Row]
    explicit_labels: bool
    numbered_names: bool = False
    warnings: tuple[str, ...] = ()


class MalformedLines(DataError):
    """A list or table with malformed lines: ``problems`` holds all of them, the message the first ones."""

    def __init__(self, origin: Path, problems: Iterable[tuple[int, str]], unit: str = "line") -> None:
        self.origin, self.unit = origin, unit
        self.problems = tuple(sorted(problems))
        examples = [f"{unit} {line}: {one_line(reason, 120)}" for line, reason in self.problems[:_MAX_EXAMPLES]]
        more = len(self.problems) - _MAX_EXAMPLES
        ending = f" (and {more} more)" if more > 0 else ""
        super().__init__(f"{one_line(origin)}: {'; '.join(examples)}{ending}")


class RowReader:
    """Collects rows and, with their line numbers, the problems of malformed lines.

    ``labels_required`` is true for a source; images of a target need no label.
    """

    def __init__(self, labels_required: bool) -> None:
        self.rows: list[Row] = []
        self.problems: list[tuple[int, str]] = []
        self._labels_required = labels_required
        self._first: dict[str, Row] = {}

    def add(self, line: int, path: str, label: str | None) -> None:
        """Add one line: the path of an image, and its label as written."""
        label = canonical_label(label)
        if len(self.rows) >= MAX_IMAGES:
            raise DataError(f"line {line}: more than {MAX_IMAGES} images: divide them")
        if not path:
            self.problems.append((line, "no path"))
        elif "\0" in path or not is_image_name(path):
            self.problems.append((line, f"{one_line(path, 80)!r} is not an image path"))
        elif label is not None and not is_text(label):
            self.problems.append((line, f"{one_line(label, 80)!r} is not a class name"))
        elif label is None and self._labels_required:
            self.problems.append((line, f"no label for {one_line(path, 80)!r}"))
        else:
            first = self._first.setdefault(path, Row(line, path, label))
            if first.label == label:
                self.rows.append(Row(line, path, label))
            else:
                where = f"{label!r} here, {first.label!r} on line {first.line}"
                self.problems.append((line, f"{one_line(path, 60)!r} is {where}"))


def canonical_label(label: str | None) -> str | None:
    """A label as a class name or a normalised id (``007`` and ``7.0`` become ``7``); None if it is empty or -1."""
    label = (label or "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.0+)?", label):
        return str(int(label.split(".")[0]))
    return None if label in ("", "-1", "-1.0") else label


def read_text(path: Path) -> str:
    """The text of a list or table; bytes that are not UTF-8 are surrogate-escaped, as in file names."""
    try:
        data = read_bytes(path, LIST_BYTES)
    except (OSError, ValueError) as error:  # also a path with a NUL
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{one_line(path)}: cannot be read ({one_line(reason)})") from None
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # spreadsheets export this
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="surrogateescape")
