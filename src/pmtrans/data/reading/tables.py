"""Read lists and tables, one row per image.

A list file, as in the UDA literature, has ``path label`` on each line; the label is optional for a target. A table is
CSV, TSV or Parquet; its columns are given by the user or found by their usual names.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from pmtrans.data.image import is_image_name
from pmtrans.data.reading.listing import MalformedLines, Row, RowReader, read_text
from pmtrans.data.reading.parquet_file import Parquet, label_in, opened_parquet
from pmtrans.data.reading.parquet_images import MANY_EMPTY, bytes_column, rows_of_parquet
from pmtrans.errors import DataError, nearest, one_line

LIST_SUFFIXES = (".txt", ".lst", ".list")
TABLE_SUFFIXES = (".csv", ".tsv", ".tab", ".parquet", ".pq")
_PATH_COLUMNS = (
    *("path", "image_path", "img_path", "file_path", "filepath", "file_name", "filename"),
    *("file", "image", "img", "image_name"),
)
# Names before ids: in a table with both, names say more.
_LABEL_COLUMNS = (
    *("class_name", "label_name", "class", "category"),
    *("label", "class_id", "label_id", "target", "y"),
)


def read_list(path: Path, labels_required: bool) -> list[Row]:
    """The rows of a list file. Paths may contain spaces; a label with spaces needs a tab before it."""
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
    if not image:  # a single word that is not an image is reported as an invalid path
        return entry, None
    return image.rstrip(" \t"), label


def read_table(path: Path, labels_required: bool, path_column: str | None, label_column: str | None) -> list[Row]:
    """The rows of a ``.csv``, ``.tsv`` or ``.parquet`` file."""
    read = _read_parquet if path.suffix.lower() in (".parquet", ".pq") else _read_csv
    return read(path, labels_required, path_column, label_column)


def _read_csv(path: Path, labels_required: bool, path_column: str | None, label_column: str | None) -> list[Row]:
    text = read_text(path)
    header_line = text.split("\n", 1)[0]
    delimiter = "\t" if path.suffix.lower() in (".tsv", ".tab") else ","
    if delimiter == "," and ";" in header_line and "," not in header_line:  # spreadsheets in many European locales
        delimiter = ";"
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    reader = RowReader(labels_required)
    begin = 1
    try:
        header = [name.strip() for name in next(lines, [])]
        at_path, at_label = _columns(path, header, labels_required, path_column, label_column)
        begin = lines.line_num + 1
        for cells in lines:
            if len(cells) == len(header):
                label = None if at_label is None else cells[at_label]
                reader.add(begin, cells[at_path], label)
            elif cells:  # skip empty lines
                reader.problems.append((begin, f"{len(cells)} columns where the header has {len(header)}"))
            begin = lines.line_num + 1
    except csv.Error as error:
        reader.problems.append((begin, str(error)))
    if reader.problems:
        raise MalformedLines(path, reader.problems)
    return reader.rows


def _read_parquet(path: Path, labels_required: bool, path_column: str | None, label_column: str | None) -> list[Row]:
    with opened_parquet(str(path)) as opened:
        if _holds_images(opened, path_column):
            return rows_of_parquet(str(path), labels_required, path_column, label_column)
        header = opened.names
        at_path, at_label = _columns(path, header, labels_required, path_column, label_column)
        places = [at_path] if at_label is None else [at_path, at_label]
        paths, *labelled = opened.texts([header[place] for place in places])
    missing = paths.count(None)
    if missing >= MANY_EMPTY and 2 * missing > len(paths):
        raise DataError(f"{one_line(path)}: {missing} rows have no path in {header[at_path]!r}: remove them")
    reader = RowReader(labels_required)
    for number, (image, label) in enumerate(zip(paths, *(labelled or [[None] * len(paths)]), strict=True), start=1):
        image = image.decode("utf-8", "surrogateescape") if isinstance(image, bytes) else image
        try:
            text = label_in(label)
        except DataError as error:
            reader.problems.append((number, str(error)))
            continue
        reader.add(number, str(image or ""), text)
    if reader.problems:
        raise MalformedLines(path, reader.problems, unit="row")
    return reader.rows


def _holds_images(opened: Parquet, path_column: str | None) -> bool:
    """Whether the column of the images, which in a table has their paths, has their bytes."""
    if path_column is None:
        lowered = {name.lower().replace(" ", "_"): name for name in opened.names}
        path_column = next((lowered[name] for name in _PATH_COLUMNS if name in lowered), None)
    return bytes_column(opened, path_column) is not None


def _columns(
    path: Path, header: Sequence[str], label_required: bool, path_column: str | None, label_column: str | None
) -> tuple[int, int | None]:
    if any(is_image_name(name) for name in header):
        raise DataError(f"{one_line(path)}: the first line must name the columns, such as path,label")
    at_path = _column(path, header, path_column, _PATH_COLUMNS, "path_column")
    if at_path is None:
        raise DataError(_not_found(path, header, "path", "path_column"))
    at_label = _column(path, header, label_column, _LABEL_COLUMNS, "label_column")
    if at_label is None and label_required:
        raise DataError(_not_found(path, header, "label", "label_column"))
    return at_path, at_label


def _column(
    path: Path, header: Sequence[str], given: str | None, usual_names: Sequence[str], option: str
) -> int | None:
    if given is not None:
        if given in header:
            return header.index(given)
        columns = f"{one_line(', '.join(header))}.{nearest(given, header)}"
        raise DataError(f"{one_line(path)}: no column {given!r} ({option}); its columns are {columns}")
    lowered = [name.lower().replace(" ", "_") for name in header]
    return next((lowered.index(name) for name in usual_names if name in lowered), None)


def _not_found(path: Path, header: Sequence[str], what: str, option: str) -> str:
    columns = one_line(", ".join(header)) or "none"
    return f"{one_line(path)}: no {what} column found; its columns are {columns}: name one with {option}"
