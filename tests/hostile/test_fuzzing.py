"""Recipes, lists, tables, JSON of run folders and raw requests made at random: a result or one line, nothing else."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import tiny_run
from fuzzing import examples
from pmtrans.config.load import load_tree
from pmtrans.data.reading.tables import read_list, read_table
from pmtrans.errors import TrainingError, UserError
from pmtrans.files import LOCK
from pmtrans.inference.predictor import load
from pmtrans.progress import Reporter
from pmtrans.report.page import write_report
from pmtrans.settings import load_config
from pmtrans.training.train import train

SECTIONS = ("seed", "data", "train", "method", "backbone", "selection", "other")
KEYS = ("source", "target", "workers", "max_steps", "batch_size", "learning_rate", "name", "options", "image_size", "x")
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
recipes = st.dictionaries(
    st.sampled_from(SECTIONS), values | st.dictionaries(st.sampled_from(KEYS), values, max_size=5), max_size=5
)


def said_by(action: Callable[[], object]) -> str:
    """One line, or a word where all is well; any other exception fails the test."""
    try:
        action()
    except (UserError, TrainingError) as error:
        said = str(error)
    else:
        said = "fine"
    assert "\n" not in said
    assert 0 < len(said) < 3000
    return said


@settings(max_examples=examples(60), deadline=None)
@given(recipes)
def test_any_recipe_is_a_configuration_or_one_line(recipe: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.yaml"
        path.write_text(yaml.safe_dump(recipe, allow_unicode=True), encoding="utf-8", errors="surrogateescape")
        said_by(lambda: load_tree(path))
        said_by(lambda: load_config(path, []))


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(SECTIONS), st.sampled_from(KEYS), values)
def test_any_override_of_a_known_setting_is_a_configuration_or_one_line(section: str, key: str, value: Any) -> None:
    said_by(lambda: load_config(None, [f"{section}.{key}={json.dumps(value)}"]))


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=300), st.sampled_from([".txt", ".csv", ".tsv", ".parquet"]), st.booleans())
def test_any_bytes_as_a_list_or_table_are_rows_or_one_error(content: bytes, suffix: str, labels: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"list{suffix}"
        path.write_bytes(content)
        if suffix == ".txt":
            _rows_or_error(lambda: read_list(path, labels_required=labels))
        else:
            _rows_or_error(lambda: read_table(path, labels, None, None))


columns = st.dictionaries(
    st.sampled_from(["path", "label", "class", "x"]),
    st.lists(st.text(max_size=8) | st.none(), min_size=3, max_size=3)
    | st.lists(st.integers(-(2**40), 2**40) | st.none(), min_size=3, max_size=3)
    | st.lists(st.lists(st.integers(0, 3), max_size=2), min_size=3, max_size=3),
    max_size=4,
)


@settings(max_examples=examples(40), deadline=None)
@given(columns, st.booleans())
def test_any_parquet_table_is_rows_or_one_error(table: dict[str, list[Any]], labels: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        try:
            parquet.write_table(pyarrow.table(table), path)
        except (UnicodeEncodeError, pyarrow.ArrowException):  # cannot be a file
            return
        _rows_or_error(lambda: read_table(path, labels, None, None))


def _rows_or_error(action: Callable[[], object]) -> None:
    """Malformed rows are one message of several lines, with their numbers."""
    try:
        action()
    except UserError as error:
        said = str(error)
    else:
        said = "fine"
    assert 0 < len(said) < 3000


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Callable[[Path], object]]:
    home = tiny_run.write_domains(tmp_path_factory.mktemp("fuzzed"))
    domains = {"data.source": str(home / "source"), "data.target": str(home / "target"), "selection.game": False}
    config = load_config(None, [], {**tiny_run.SETTINGS, **domains, "train.max_steps": 2})
    train(config, home / "run", Reporter(quiet=True))
    return home / "run", lambda run: train(config, run, Reporter(quiet=True))


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from _places(item, (*path, key))


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = _replaced(value[path[0]], path[1:], new)
    return copy


@settings(max_examples=examples(2), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_value_anywhere_in_the_json_of_a_run_is_harmless_or_one_line(
    finished: tuple[Path, Callable[[Path], object]], data: st.DataObject
) -> None:
    original, resume = finished
    texts = sorted(path.relative_to(original) for path in original.rglob("*.json") if path.name != LOCK)
    text = data.draw(st.sampled_from(texts))
    content = json.loads((original / text).read_text(encoding="utf-8"))
    place = data.draw(st.sampled_from(list(_places(content))))
    forged = _replaced(content, place, data.draw(values))
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        shutil.copytree(original, run)
        (run / text).write_text(json.dumps(forged), encoding="utf-8", errors="surrogateescape")
        said_by(lambda: load(run, device="cpu"))
        said_by(lambda: write_report(run, Path(folder) / "page.html", figures=False))
        said_by(lambda: resume(run))


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    program = [sys.executable, str(Path(__file__).with_name("small_server.py")), '{"header_seconds": 1.0}']
    with (tmp_path_factory.mktemp("server") / "log").open("wb+") as log:
        server = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=log, text=True)
        assert server.stdout is not None
        yield int(server.stdout.readline().rpartition(":")[2])
        still = server.poll() is None
        server.terminate()
        server.wait()
        log.seek(0)
        assert still
        assert b"Traceback" not in log.read()


tokens = st.sampled_from(
    [b"GET", b"POST", b" ", b"/health", b"/predict", b"HTTP/1.1", b"\r\n", b"\r\n\r\n", b"Host: localhost", b"\0",
     b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 99999999999999999", b"Transfer-Encoding: chunked",
     b"5\r\nhello\r\n0\r\n\r\n", b"Expect: 100-continue", b"Connection: close", b"Upgrade: websocket", b"%00", b"\xff"]
)  # fmt: skip


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(tokens | st.binary(max_size=30), max_size=15).map(b"".join))
def test_any_bytes_to_the_server_get_no_server_error_and_it_lives(port: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(sent)
        try:
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(1000)
        except OSError:  # closed by the server
            answer = b""
    assert not answer.startswith(b"HTTP/1.1 5")
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
