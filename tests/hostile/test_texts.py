"""Texts that are too large, too deep, endless or forged: one line each, at once."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from pmtrans.config.load import load_tree
from pmtrans.data.reading.classes import read_classes
from pmtrans.data.reading.tables import read_list, read_table
from pmtrans.errors import ConfigError, DataError, UserError
from pmtrans.run.metrics import read_metrics
from pmtrans.run.summary import read_summary
from pmtrans.texts import MAX_IMAGES, SETTINGS_BYTES, TextError, parse_json, parse_yaml, read_json, read_text

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@contextmanager
def at_once(seconds: float = 1.0) -> Iterator[None]:
    begin = time.process_time()
    yield
    assert time.process_time() - begin < seconds


def is_one_line(error: BaseException | str) -> bool:
    return "\n" not in str(error) and 0 < len(str(error)) < 2000


BAD_YAML = {
    "billion laughs": LAUGHS,
    "a cycle": "a: &a [*a]",
    "deep lists": "a: " + "[" * 5000,
    "deep mappings": "{a: " * 5000,
    "large": "a: " + "x" * 2 * SETTINGS_BYTES,
    "a date that does not exist": "seed: 2024-13-45",
    "an integer of 5,000 digits": "seed: " + "9" * 5000,
    "a Python tag": "a: !!python/object/apply:os.system ['true']",
    "a NUL": "a: \0",
    "unhashable keys": "? [a]\n: b",
    "a tab": "a:\n\t- b",
}


@pytest.mark.parametrize("text", ["seed: 0x" + 4000 * "f", "[[0b" + 2000 * "1" + "]]", "a: -0" + 1000 * "7"])
def test_an_endless_integer_of_yaml_is_one_line(text: str) -> None:
    """Python cannot even write it into a message."""
    with pytest.raises(TextError, match=r"^an integer of more than 1024 bits$"):
        parse_yaml(text)
    assert parse_yaml("seed: 0x" + 200 * "f") == {"seed": int(200 * "f", 16)}


@pytest.mark.parametrize("name", BAD_YAML)
def test_a_hostile_recipe_is_one_line(tmp_path: Path, name: str) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(BAD_YAML[name], encoding="utf-8")
    with at_once(), pytest.raises(ConfigError, match=r"^Recipe .* cannot be read: ") as caught:
        load_tree(recipe)
    assert is_one_line(caught.value)


@pytest.mark.parametrize("name", BAD_YAML)
def test_a_hostile_override_is_one_line(name: str) -> None:
    with at_once(), pytest.raises(ConfigError, match=r"^Override .*: the value is ") as caught:
        load_tree(None, [f"data.source={BAD_YAML[name].removeprefix('a: ').removeprefix('seed: ')}"])
    assert is_one_line(caught.value)


def test_a_pipe_a_device_and_a_folder_are_no_texts(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/null"), tmp_path):
        with at_once(), pytest.raises(ConfigError, match=r"^Recipe .* cannot be read: (not a regular|[Ii]s a dir)"):
            load_tree(path)
    (tmp_path / "list.txt").symlink_to("/dev/zero")
    with at_once(), pytest.raises(DataError, match="not a regular file"):
        read_list(tmp_path / "list.txt", labels_required=False)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tree(Path("a\0b"))


def test_a_file_that_grows_without_end_is_cut_off(tmp_path: Path) -> None:
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(1 << 40)  # sparse: takes no room
    with at_once(), pytest.raises(TextError, match=r"^more than 1000 bytes$"):
        read_text(tmp_path / "huge.json", 1000)


BAD_JSON = {
    "deep lists": "[" * 100_000,
    "deep but whole": "[" * 60 + "]" * 60,
    "deep objects": '{"a":' * 5000 + "1" + "}" * 5000,
    "an integer of 5,000 digits": "9" * 5000,
    "half": '{"a": ',
    "empty": "",
    "bytes": "\udcff\udcfe",
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_hostile_json_is_one_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(BAD_JSON[name], encoding="utf-8", errors="surrogateescape")
    with at_once(), pytest.raises(TextError) as caught:
        read_json(path)
    assert is_one_line(caught.value)
    with pytest.raises(UserError, match=r"summary|x\.json.* cannot be read"):
        read_summary(path)
    with pytest.raises(DataError):
        read_classes(path)
    assert read_metrics(path) == []


@pytest.mark.parametrize("value", [[], {}, 1, "x", None, {"method": 3}, {"method": ["a"], "probe": "high"}])
def test_a_summary_of_wrong_types_is_refused(tmp_path: Path, value: object) -> None:
    (tmp_path / "summary.json").write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot be read: remove it"):
        read_summary(tmp_path / "summary.json")


def test_a_schema_names_what_does_not_fit() -> None:
    assert parse_json('{"a": [1, 2]}', dict[str, list[int]]) == {"a": [1, 2]}
    with pytest.raises(TextError, match=r"^a\.1: "):
        parse_json('{"a": [1, "x"]}', dict[str, list[int]])


def test_a_table_of_too_many_rows_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "many.parquet"
    rows = MAX_IMAGES // 10 + 1
    batch = pyarrow.table({"path": pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * rows, "int8"), ["a.png"])})
    with parquet.ParquetWriter(path, batch.schema) as writer:
        for _ in range(10):
            writer.write_table(batch)
    with at_once(2), pytest.raises(DataError, match=r"10000010 rows, 10000000 allowed"):
        read_table(path, False, None, None)


def said_by(action: Callable[[], object]) -> str:
    """The user's error, or a word where there is none; any other exception fails the test."""
    try:
        action()
    except UserError as error:
        return str(error)
    return "fine"


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_any_text_as_yaml_is_a_value_or_one_error(text: str) -> None:
    assert is_one_line(said_by(lambda: parse_yaml(text)))


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_as_json_are_a_value_or_one_error(data: bytes) -> None:
    assert is_one_line(said_by(lambda: parse_json(data)))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_override_is_a_tree_or_one_error(key: str, value: str) -> None:
    assert is_one_line(said_by(lambda: load_tree(None, [f"{key}={value}"])))
