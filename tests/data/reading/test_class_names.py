"""Classes are matched by name, and never guessed where two could be meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pmtrans.data.reading.classes import match_classes, read_classes, sort_classes
from pmtrans.data.reading.read import read_source
from pmtrans.errors import DataError


def test_exact_names_match_in_any_order() -> None:
    match = match_classes(["mug", "bike"], ["bike", "lamp", "mug"])
    assert match.index == {"mug": 2, "bike": 0}
    assert not match.inexact
    assert not match.unknown


@pytest.mark.parametrize("found", ["Back Pack", "back-pack", "BACKPACK", "back.pack"])
def test_case_and_separators_are_forgiven_and_told(found: str) -> None:
    match = match_classes([found], ["back_pack", "bike"])
    assert match.index == {found: 0}
    assert match.inexact == {found: "back_pack"}


def test_leading_zeros_are_forgiven() -> None:
    assert match_classes(["001", "010"], ["1", "10", "100"]).index == {"001": 0, "010": 1}


def test_names_of_signs_alone_are_not_alike() -> None:
    assert match_classes(["-"], ["+", "bike"]).unknown == ("-",)
    assert match_classes(["+"], ["+", "-"]).index == {"+": 0}


def test_two_candidates_are_no_match() -> None:
    assert match_classes(["BIKE"], ["bike", "Bike"]).unknown == ("BIKE",)
    assert match_classes(["Bike", "BIKE"], ["bike", "mug"]).unknown == ("BIKE", "Bike")


def test_an_exact_match_wins_over_a_forgiven_one() -> None:
    match = match_classes(["bike", "Bike"], ["bike", "mug"])
    assert match.index == {"bike": 0}
    assert match.unknown == ("Bike",)


def test_ids_are_sorted_by_number_and_names_by_letter() -> None:
    assert sort_classes(["10", "9", "1", "9"]) == ["1", "9", "10"]
    assert sort_classes(["b", "10", "a"]) == ["10", "a", "b"]


def test_classes_are_read_from_lines_and_from_json(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("mug\nalarm clock\n\n")
    (tmp_path / "classes.json").write_text(json.dumps(["mug", "alarm clock"]))
    for given in (tmp_path / "classes.txt", str(tmp_path / "classes.json"), ["mug", "alarm clock"]):
        assert read_classes(given) == ("mug", "alarm clock")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.txt", "mug\nmug\n", "mug"),
        ("c.txt", "mug\n", "at least 2"),
        ("c.json", "{}", "list"),
        ("c.json", "[", "JSON"),
    ],
)
def test_classes_files_that_make_no_sense_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_classes(tmp_path / name)


def test_a_missing_classes_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_classes(tmp_path / "none.txt")


def _source(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "1.png").write_bytes(b"an image")
    return folder


def test_two_classes_of_a_source_that_look_the_same_are_one_line(tmp_path: Path) -> None:
    source = _source(tmp_path / "images", "caf\u00e9", "cafe\u0301", "tea")
    with pytest.raises(DataError, match="two classes are both called 'caf\u00e9'"):
        read_source(source)


def test_classes_of_a_source_that_differ_in_case_alone_are_told(tmp_path: Path) -> None:
    found = read_source(_source(tmp_path / "images", "Mug", "mug", "tea pot", "tea_pot", "bike"))
    assert found.classes == ("Mug", "bike", "mug", "tea pot", "tea_pot")
    (warning,) = found.warnings
    assert "'Mug' and 'mug', 'tea pot' and 'tea_pot': is each a class of its own?" in warning
    assert not read_source(_source(tmp_path / "others", "mug", "bike")).warnings
