"""CSV, TSV and Parquet: columns named or found, and each bad row reported with its line."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmtrans.data.reading.listing import MalformedLines
from pmtrans.data.reading.tables import read_table
from pmtrans.errors import DataError

_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\ufeff")
paths = st.text(_CHARACTERS, max_size=20).map(lambda stem: f"d/{stem}x.jpg")
labels = st.integers(0, 400).map(str) | st.from_regex(r"[a-z][a-z ,\"']{0,8}[a-z]", fullmatch=True)
entries = st.lists(st.tuples(paths, labels), max_size=15, unique_by=lambda entry: entry[0])
DELIMITERS = {".csv": ",", ".tsv": "\t"}


def written(rows: list[list[str]], delimiter: str) -> tuple[str, list[int]]:
    """A table as text, and the line on which each row begins."""
    text, begins = "", []
    for row in rows:
        buffer = io.StringIO()
        csv.writer(buffer, delimiter=delimiter, lineterminator="\n").writerow(row)
        begins.append(text.count("\n") + 1)
        text += buffer.getvalue()
    return text, begins


def read(text: str, suffix: str = ".csv", required: bool = True, **columns: str) -> list[tuple[object, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table{suffix}"
        path.write_text(text, encoding="utf-8", newline="")
        rows = read_table(path, required, columns.get("path_column"), columns.get("label_column"))
        return [tuple(row) for row in rows]


@settings(deadline=None, max_examples=60)
@given(entries, st.sampled_from(sorted(DELIMITERS)))
def test_every_well_formed_table_comes_back(rows: list[tuple[str, str]], suffix: str) -> None:
    cells = [["label", "note", "path"], *([label, "x,\ty\n", path] for path, label in rows)]
    text, begins = written(cells, DELIMITERS[suffix])
    assert read(text, suffix) == [(line, *row) for line, row in zip(begins[1:], rows, strict=True)]


wrong_rows = st.sampled_from([["x.jpg"], ["x.jpg", "1", "2"], ["", "1"], ["x.jpg", ""], ["x.txt", "1"]])


@settings(deadline=None, max_examples=60)
@given(entries, st.lists(st.tuples(st.integers(0, 15), wrong_rows), min_size=1, max_size=6))
def test_every_malformed_row_is_reported_with_its_line(
    rows: list[tuple[str, str]], wrong: list[tuple[int, list[str]]]
) -> None:
    table = [(list(row), False) for row in rows]
    for position, row in wrong:
        table.insert(min(position, len(table)), (row, True))
    text, begins = written([["path", "label"], *(row for row, _ in table)], ",")
    with pytest.raises(MalformedLines) as caught:
        read(text)
    expected = [line for line, (_, is_wrong) in zip(begins[1:], table, strict=True) if is_wrong]
    assert [line for line, _ in caught.value.problems] == expected


def test_an_open_quote_is_reported_where_it_opens() -> None:
    with pytest.raises(MalformedLines, match="line 3: "):
        read('path,label\na.jpg,1\n"b.jpg,2\nc.jpg,3\n')


@pytest.mark.parametrize("header", ["path,label", "Image_Path,Class", "file name,category", "x,filename,y"])
def test_usual_columns_are_found(header: str) -> None:
    names = header.split(",")
    cells = {"x": "0", "y": "7", "filename": "a.jpg"}
    row = [cells.get(name, "a.jpg" if "p" in name.lower() or "file" in name else "7") for name in names]
    assert read(f"{header}\n{','.join(row)}\n") == [(2, "a.jpg", "7")]


def test_names_are_preferred_to_ids() -> None:
    assert read("path,label,class_name\na.jpg,3,bike\n") == [(2, "a.jpg", "bike")]


def test_columns_can_be_given() -> None:
    text = "where,what,path\na.jpg,bike,b.jpg\n"
    assert read(text, path_column="where", label_column="what") == [(2, "a.jpg", "bike")]


def test_an_unknown_column_is_named_with_the_nearest() -> None:
    with pytest.raises(DataError, match=r"no column 'pth'.*Did you mean 'path'"):
        read("path,label\na.jpg,1\n", path_column="pth")


def test_a_table_without_header_or_path_or_label_is_refused() -> None:
    with pytest.raises(DataError, match="first line must name the columns"):
        read("a.jpg,1\nb.jpg,2\n")
    with pytest.raises(DataError, match="no path column found"):
        read("u,v\na.jpg,1\n")
    with pytest.raises(DataError, match="no label column found"):
        read("path,v\na.jpg,1\n")
    with pytest.raises(DataError, match="no path column found"):
        read("")
    assert read("path,v\na.jpg,1\n", required=False) == [(2, "a.jpg", None)]


def test_semicolons_and_spreadsheet_encodings_are_read(tmp_path: Path) -> None:
    assert read("path;label\na,b.jpg;1\n") == [(2, "a,b.jpg", "1")]
    path = tmp_path / "sheet.tsv"
    path.write_bytes("path\tlabel\nä.jpg\t1\n".encode("utf-16"))
    assert [tuple(row) for row in read_table(path, True, None, None)] == [(2, "ä.jpg", "1")]


def test_parquet_rows_come_back_and_bad_ones_are_numbered(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "table.parquet"
    parquet.write_table(pyarrow.table({"path": ["b.jpg", "a.jpg"], "label": [3, 4]}), path)
    assert [tuple(row) for row in read_table(path, True, None, None)] == [
        (1, "b.jpg", "3"),
        (2, "a.jpg", "4"),
    ]
    images = pyarrow.table({"path": ["b.jpg", None, "c.jpg"], "label": ["x", "y", None]})
    parquet.write_table(images, path)
    with pytest.raises(MalformedLines, match=r"row 2: no path; row 3: no label"):
        read_table(path, True, None, None)
    path.write_bytes(b"not parquet")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read_table(path, True, None, None)
