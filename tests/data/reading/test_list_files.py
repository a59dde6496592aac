"""List files: what is well formed comes back, what is not is reported with its line."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmtrans.data.reading.listing import MalformedLines
from pmtrans.data.reading.tables import read_list

_CHARACTERS = st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\ufeff")
paths = st.builds(
    lambda stem, suffix: f"d/{stem}x{suffix}",
    st.text(_CHARACTERS, max_size=20),
    st.sampled_from([".jpg", ".PNG", ".webp", ".tiff"]),
)
ids = st.integers(0, 400).map(str)
names = st.from_regex(r"[a-z][a-z_]{0,10}", fullmatch=True)
entries = st.lists(st.tuples(paths, ids | names), max_size=20, unique_by=lambda entry: entry[0])
malformed = st.sampled_from(
    ["nolabel.jpg", "word", "word 3", "path.jpg 3 4", " 7", "5", "noextension 5", "x.jpg -1", "a\0b.jpg 1"]
)


def read(text: str, labels_required: bool = True) -> list[tuple[int, str, str | None]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "list.txt"
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return [(row[0], row[1], row[2]) for row in read_list(path, labels_required)]


@settings(deadline=None, max_examples=60)
@given(entries, st.sampled_from(["\n", "\r\n"]), st.sampled_from([" ", "\t", "   "]), st.booleans())
def test_every_well_formed_list_comes_back(
    rows: list[tuple[str, str]], newline: str, separator: str, ends: bool
) -> None:
    text = newline.join(f"{path}{separator}{label}" for path, label in rows) + newline * ends
    assert read(text) == [(number, *row) for number, row in enumerate(rows, start=1)]


@settings(deadline=None, max_examples=60)
@given(st.lists(paths, max_size=20, unique=True))
def test_a_target_needs_no_labels(rows: list[str]) -> None:
    assert read("\n".join(rows), False) == [(number, row, None) for number, row in enumerate(rows, start=1)]


@settings(deadline=None, max_examples=60)
@given(entries, st.lists(st.tuples(st.integers(0, 20), malformed), min_size=1, max_size=8))
def test_every_malformed_line_is_reported_with_its_number(
    rows: list[tuple[str, str]], wrong: list[tuple[int, str]]
) -> None:
    lines = [(f"{path} {label}", False) for path, label in rows]
    for position, line in wrong:
        lines.insert(min(position, len(lines)), (line, True))
    with pytest.raises(MalformedLines) as caught:
        read("\n".join(line for line, _ in lines))
    expected = [number for number, (_, is_wrong) in enumerate(lines, start=1) if is_wrong]
    assert [line for line, _ in caught.value.problems] == expected
    message = str(caught.value)
    assert "list.txt" in message
    assert f"line {expected[0]}: " in message
    assert len(message.splitlines()) == 1


def test_empty_lines_count_but_say_nothing() -> None:
    assert read("\n  \na.jpg 1\n\n") == [(3, "a.jpg", "1")]


def test_a_label_with_spaces_needs_a_tab() -> None:
    assert read("my photo.jpg\talarm clock") == [(1, "my photo.jpg", "alarm clock")]


def test_one_image_with_two_labels_is_reported_with_both_lines() -> None:
    with pytest.raises(MalformedLines, match=r"line 3: 'a\.jpg' is '2' here, '1' on line 1"):
        read("a.jpg 1\nb.jpg 1\na.jpg 2")


def test_an_image_may_be_named_twice() -> None:
    assert len(read("a.jpg 1\na.jpg 1")) == 2


def test_bytes_that_are_not_utf8_and_byte_order_marks_are_read() -> None:
    assert read("\ufeffcaf\udce9.jpg 1") == [(1, "caf\udce9.jpg", "1")]


def test_ids_are_numbers_however_they_are_written() -> None:
    assert [label for _, _, label in read("a.jpg 007\nb.jpg 7.0\nc.jpg 7")] == ["7", "7", "7"]
