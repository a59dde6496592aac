"""Parquet files that stand for far more than they hold: one line each, at once, and nothing is left in the cache."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from pmtrans.data.reading.parquet_file import FREE_ROWS
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.errors import DataError
from shards_by_hand import picture


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMTRANS_CACHE", str(tmp_path / "cache"))


def written(folder: Path, columns: Any, names: list[str] | None = None, **options: Any) -> Path:
    path = folder / "x.parquet"
    parquet.write_table(pa.table(columns, names=names), path, **options)
    return path


def refusal(path: Path) -> str:
    begin = time.process_time()
    with pytest.raises(DataError) as caught:
        read_source(path)
    assert time.process_time() - begin < 2
    cache = path.parent / "cache" / "shards"
    assert not cache.exists() or not list(cache.glob("*.tar*")) + list(cache.glob(".*.tmp"))
    said = str(caught.value)
    assert said.startswith(str(path))
    assert len(said.splitlines()) == 1
    return said


def empty(rows: int, kind: Any = None) -> pa.Array:
    return pa.nulls(rows, type=kind or pa.binary())


def repeated(value: bytes | str, times: int) -> pa.Array:
    """One value in the file, and many rows."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * times, "int32"), pa.array([value]))


def test_millions_of_rows_in_a_few_bytes_are_refused_by_the_metadata(tmp_path: Path) -> None:
    rows = 3 * FREE_ROWS
    path = written(tmp_path, {"image": empty(rows), "label": pa.nulls(rows, pa.int8())})
    assert f"{rows} rows in {path.stat().st_size} bytes" in refusal(path)


@pytest.mark.parametrize("struct", [False, True])
def test_nulls_in_place_of_images_are_told(tmp_path: Path, struct: bool) -> None:
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())]) if struct else pa.binary()
    rows = 200_000
    path = written(tmp_path, {"image": empty(rows, kind), "label": pa.array(range(rows))})
    expected = "rows have no image in 'image'" if struct else "200000 rows have no path in 'image'"
    assert expected in refusal(path)


def test_a_few_rows_without_an_image_are_unreadable_images(tmp_path: Path) -> None:
    path = written(tmp_path, {"image": [picture(1), None, picture(2)], "label": ["a", "b", "b"]})
    assert len(read_source(path)) == 3


def test_a_large_image_that_is_stored_once_and_repeated_is_refused(tmp_path: Path) -> None:
    images = repeated(bytes(20_000_000), 60)
    path = written(tmp_path, {"image": images, "label": ["a", "b"] * 30}, compression="zstd", store_schema=False)
    assert path.stat().st_size < 10_000
    assert "times as large unpacked as its" in refusal(path)


def test_zeros_that_compress_well_are_refused_before_they_are_read(tmp_path: Path) -> None:
    plain: dict[str, Any] = {"compression": "zstd", "use_dictionary": False, "write_statistics": False}
    path = written(tmp_path, {"image": [bytes(70_000_000)], "label": ["a"]}, **plain)
    assert "times as large unpacked as its" in refusal(path)


def test_long_paths_that_are_stored_once_are_read_once(tmp_path: Path) -> None:
    paths = repeated("a/" + "x" * 5_000_000 + ".png", 200)
    path = written(tmp_path, {"path": paths, "label": ["a", "b"] * 100}, compression="zstd", store_schema=False)
    refusal(path)


def test_equal_columns_are_one_line(tmp_path: Path) -> None:
    path = written(tmp_path, [["a/1.png"], ["b"]], names=["path", "path"])
    assert "several columns are called 'path'" in refusal(path)


@pytest.mark.parametrize("column", ["path", "image"])
def test_days_that_no_calendar_has_are_one_line(tmp_path: Path, column: str) -> None:
    days = pa.array([2**31 - 1, 1], type=pa.int32()).cast(pa.date32())
    images = ["a/1.png", "a/2.png"] if column == "path" else [picture(1), picture(2)]
    assert "cannot be read as Parquet" in refusal(written(tmp_path, {column: images, "label": days}))


@pytest.mark.parametrize("described", [b"[" * 100_000, b'{"info":{"features":{"label":{"names":["\\ud800","b"]}}}}'])
def test_a_forged_description_is_one_line(tmp_path: Path, described: bytes) -> None:
    table = pa.table({"image": [picture(1), picture(2)], "label": [0, 1]})
    path = tmp_path / "x.parquet"
    parquet.write_table(table.replace_schema_metadata({b"huggingface": described}), path)
    assert "its description by Hugging Face" in refusal(path)


def test_names_of_classes_and_dictionaries_are_still_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(3):
        (tmp_path / "a" / f"{number}.png").write_bytes(picture(number))
    labels = pa.array(["cat", "dog", "cat"]).dictionary_encode()
    path = written(tmp_path, {"path": [f"a/{number}.png" for number in range(3)], "label": labels})
    source = read_source(path)
    assert [source.classes[label] for label in source.labels] == ["cat", "dog", "cat"]
    target = read_target(written(tmp_path, {"path": ["a/0.png", "a/1.png"], "label": [None, "dog"]}), ["cat", "dog"])
    assert target.labelled is not None
    assert target.labelled.labels == (1,)
    table = pa.table({"image": [picture(1), picture(2)], "label": [0, 1]})
    known = {"info": {"features": {"label": {"names": ["cat", "dog"]}}}}
    parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(known)}), tmp_path / "y.parquet")
    assert read_source(tmp_path / "y.parquet").classes == ("cat", "dog")


@pytest.mark.parametrize("column", ["image", "path"])
@pytest.mark.parametrize("label", [[1, 2], {"a": 1}, b"a\0b"])
def test_labels_that_are_no_class_names_are_one_line(tmp_path: Path, column: str, label: Any) -> None:
    images = ["a/1.png", "a/2.png"] if column == "path" else [picture(1), picture(2)]
    said = refusal(written(tmp_path, {column: images, "label": [None, label]}))
    assert "row 2: " in said
    assert "is not a class name" in said


@pytest.mark.parametrize("column", ["image", "path"])
def test_the_bytes_of_a_class_name_are_the_name(tmp_path: Path, column: str) -> None:
    images: list[Any] = [picture(1), picture(2)]
    if column == "path":
        for number, content in enumerate(images):
            (tmp_path / f"{number}.png").write_bytes(content)
        images = ["0.png", "1.png"]
    classes = ["ünï", "dog"]
    labels = pa.array([name.encode() for name in classes], pa.binary())
    assert set(read_source(written(tmp_path, {column: images, "label": labels})).classes) == set(classes)


def described(path: Path, labels: list[int | None], names: list[str]) -> Path:
    table = pa.table({"image": [picture(number) for number in range(len(labels))], "label": labels})
    known = {"info": {"features": {"label": {"names": names}}}}
    parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(known)}), path)
    return path


@pytest.mark.parametrize("number", [2, 7, -2])
def test_a_number_without_a_class_name_is_one_line(tmp_path: Path, number: int) -> None:
    path = described(tmp_path / "x.parquet", [0, 1, number], ["ant", "bee"])
    assert f"row 3: {number} is not one of the 2 classes that it names" in refusal(path)


def test_minus_one_is_no_label(tmp_path: Path) -> None:
    path = described(tmp_path / "x.parquet", [0, -1, None], ["ant", "bee"])
    target = read_target(path, ["ant", "bee"])
    assert target.labelled is not None
    assert target.labelled.labels == (0,)


def test_a_name_of_any_length_is_read(tmp_path: Path) -> None:
    path = described(tmp_path / f"{'ü' * 123}.parquet", [0, 1], ["ant", "bee"])
    assert read_source(path).classes == ("ant", "bee")


def test_lists_in_place_of_paths_are_one_line(tmp_path: Path) -> None:
    assert "x.parquet" in refusal(written(tmp_path, {"path": [["a.png"], ["b.png"]], "label": ["a", "b"]}))
