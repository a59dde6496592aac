"""Lists made on other machines are found on this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pmtrans.data.reading.locate import locate
from pmtrans.errors import DataError


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """An office31 with two images."""
    for name in ("amazon/images/bike/1.jpg", "amazon/images/mug/2.jpg"):
        path = tmp_path / "office31" / name
        path.parent.mkdir(parents=True)
        path.touch()
    return tmp_path / "office31"


NAMES = ["amazon/images/bike/1.jpg", "amazon/images/mug/2.jpg"]


@pytest.mark.parametrize(
    "prefix", ["", "/home/somebody/datasets/office31/", "data/office31/", "./", "../office31/", "C:\\data\\"]
)
def test_prefixes_of_other_machines_are_replaced_by_the_root(copy: Path, prefix: str) -> None:
    names = [prefix + name for name in NAMES]
    if "\\" in prefix:
        names = [name.replace("/", "\\") for name in names]
    assert locate(names, Path("/elsewhere/list.txt"), copy) == [str(copy / name) for name in NAMES]


def test_prefixes_may_differ_from_folder_to_folder(copy: Path) -> None:
    names = ["/home/one/" + NAMES[0], "two/" + NAMES[1]]
    assert locate(names, Path("list.txt"), copy) == [str(copy / name) for name in NAMES]


@pytest.mark.parametrize("place", [".", "lists"])
def test_without_a_root_paths_count_from_the_list_or_its_parent(copy: Path, place: str) -> None:
    assert locate(NAMES, copy / place / "list.txt", None) == [str(copy / name) for name in NAMES]


def test_without_a_root_paths_may_count_from_the_working_folder(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy)
    assert locate(NAMES, Path("/nowhere/at/all/list.txt"), None) == [str(copy / name) for name in NAMES]


def test_absolute_paths_are_kept_where_they_exist(copy: Path, tmp_path: Path) -> None:
    names = [str(copy / name) for name in NAMES]
    assert locate(names, Path("list.txt"), None) == names
    assert locate(names, Path("list.txt"), tmp_path / "other") == names


def test_a_missing_file_stays_in_its_folder_to_be_reported(copy: Path) -> None:
    os.remove(copy / NAMES[0])
    (copy / "amazon/images/bike/3.jpg").touch()
    names = ["/x/" + name for name in (*NAMES, "amazon/images/bike/3.jpg")]
    assert locate(names, Path("list.txt"), copy)[0] == str(copy / NAMES[0])


@pytest.mark.parametrize(("root", "hint"), [(None, "set root"), ("empty", "below the root")])
def test_a_list_of_nothing_that_exists_is_refused(tmp_path: Path, root: str | None, hint: str) -> None:
    with pytest.raises(DataError, match=hint):
        locate(["/home/x/1.jpg"], tmp_path / "list.txt", root and tmp_path / root)
