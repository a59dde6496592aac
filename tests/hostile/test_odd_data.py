"""Names that are no text, tables that were changed, folders without end: one line each. Accents match as they look."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from pmtrans.config.load import load_tree
from pmtrans.data.reading.classes import match_classes
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.errors import ConfigError, DataError, RunError
from pmtrans.files import write_json, write_text
from pmtrans.run.folder import RunFolder, claim
from pmtrans.watching.ledger import open_ledger
from shards_by_hand import picture, write_tar
from tiny_data import write_domain


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMTRANS_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("label", [rb'{"label": "\ud800"}', rb'{"label": "a\u0000"}'])
def test_half_a_character_in_the_json_of_a_shard_is_one_line(tmp_path: Path, label: bytes) -> None:
    with pytest.raises(DataError, match=r"1\.json: not a text: "):
        read_source(write_tar(tmp_path / "x.tar", {"1.png": picture(1), "1.json": label}))


def test_a_nul_in_a_class_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"1\.cls: .* is no class name"):
        read_source(write_tar(tmp_path / "x.tar", {"1.png": picture(1), "1.cls": b"a\0b"}))
    (tmp_path / "x.txt").write_bytes(b"a.png a\0b\nb.png c\n")
    with pytest.raises(DataError, match=r"line 1: .* is not a class name"):
        read_source(tmp_path / "x.txt")


@pytest.mark.parametrize("name", [r"a\u0000.tar", r"\ud800.tar"])
def test_shards_whose_names_are_no_text_are_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "pack.json").write_text(f'{{"shards": ["{name}"]}}')
    with pytest.raises(DataError, match=r"pack\.json: cannot be read \(not a text: "):
        read_source(tmp_path)


@pytest.mark.parametrize("value", [r'"\ud800"', r'"\0"', r'["\udfff"]', r'{"\0": 1}'])
def test_a_setting_that_is_no_text_is_one_line(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^Override .*: the value is not a text: "):
        load_tree(None, [f"data.cache={value}"])


def test_a_table_of_a_watch_with_another_header_is_not_resumed(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "watch", "x", 8, 0.1):
        pass
    table = tmp_path / "watch" / "predictions.csv"
    table.write_bytes(table.read_bytes().replace(b"path", b"psth", 1))
    changed = pytest.raises(RunError, match=r"cannot be resumed \(predictions\.csv was changed\)")
    with changed, open_ledger(tmp_path / "watch", "x", 8, 0.1):
        pass


def test_a_run_with_a_folder_without_end_is_one_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write_json(run / "data.json", {})
    write_text(run / "config.yaml", "seed: 0\n")
    (run / "figures").mkdir()
    inside = os.open(run / "figures", os.O_RDONLY)
    for _ in range(sys.getrecursionlimit() + 500):  # compilers and page builders raise it
        os.mkdir("d", dir_fd=inside)
        deeper = os.open("d", os.O_RDONLY, dir_fd=inside)
        os.close(inside)
        inside = deeper
    os.close(inside)
    try:
        refused = pytest.raises(RunError, match=r"figures' is nested too deeply: remove it yourself")
        with refused, claim(RunFolder(run), overwrite=True):
            pass
    finally:
        subprocess.run(["rm", "-rf", str(run)], check=True)


def test_names_that_look_the_same_are_the_same_class(tmp_path: Path) -> None:
    composed, decomposed = "café", unicodedata.normalize("NFD", "café")
    assert composed != decomposed
    match = match_classes([decomposed, "tea"], [composed, "tea"])
    assert match.index == {decomposed: 0, "tea": 1}
    source = read_source(write_domain(tmp_path / "source", [composed, "cafe"], 2, tint=0))
    target = read_target(write_domain(tmp_path / "target", [decomposed, "cafe"], 2, tint=9), source.classes)
    assert target.labelled is not None
    assert len(target.labelled) == 4
    assert any("matched ignoring" in warning for warning in target.warnings)
