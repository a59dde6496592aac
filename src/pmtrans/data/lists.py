"""The list files of the UDA literature: ``path label`` on each line, the label optional for a target."""

from __future__ import annotations

from pathlib import Path

from pmtrans.data.image import is_image_name
from pmtrans.data.rows import MalformedLines, Row, RowReader, read_text


def read_list(path: Path, labels_required: bool) -> list[Row]:
    """The rows of a list file. The path may hold spaces; a label that does needs a tab before it."""
    reader = RowReader(labels_required)
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if entry := line.strip(" \t\r"):
            reader.add(number, *_split(entry))
    if reader.problems:
        raise MalformedLines(path, reader.problems)
    return reader.rows


def _split(entry: str) -> tuple[str, str | None]:
    if is_image_name(entry):
        return entry, None
    image, _, label = entry.rpartition("\t" if "\t" in entry else " ")
    if not image:  # one word that is no image: let it be reported as the path it should have been
        return entry, None
    return image.rstrip(" \t"), label
