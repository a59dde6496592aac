"""Every image below a folder, once, in an order that depends on nothing but the names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pmtrans.data.reading.folders import list_images, read_folder
from pmtrans.errors import DataError


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def below(folder: Path) -> list[str]:
    return [os.path.relpath(path, folder) for path in list_images(folder)]


def test_any_depth_and_mixed_extensions_sorted(tmp_path: Path) -> None:
    touch(tmp_path, "b.PNG", "a/z.jpeg", "a/b/c/d.webp", "a/readme.md", "noextension", "c.gif.txt")
    assert below(tmp_path) == ["a/b/c/d.webp", "a/z.jpeg", "b.PNG"]


def test_hidden_files_and_leftovers_are_passed_over(tmp_path: Path) -> None:
    touch(tmp_path, ".hidden.jpg", ".cache/a.jpg", "__MACOSX/a.jpg", "@eaDir/a.jpg", "real.jpg")
    assert below(tmp_path) == ["real.jpg"]


def test_a_folder_named_as_an_image_is_a_folder(tmp_path: Path) -> None:
    touch(tmp_path, "x.jpg/inner.png")
    assert below(tmp_path) == ["x.jpg/inner.png"]


def test_links_are_followed_without_loops(tmp_path: Path) -> None:
    touch(tmp_path / "elsewhere", "one.jpg", "deep/two.jpg")
    touch(tmp_path / "top", "own.jpg", "sub/three.jpg")
    os.symlink(tmp_path / "elsewhere", tmp_path / "top" / "link")
    os.symlink("..", tmp_path / "top" / "sub" / "parent")
    os.symlink(tmp_path, tmp_path / "top" / "sub" / "grandparent")
    os.symlink(tmp_path / "elsewhere", tmp_path / "elsewhere" / "deep" / "again")
    assert below(tmp_path / "top") == ["link/deep/two.jpg", "link/one.jpg", "own.jpg", "sub/three.jpg"]


def test_a_folder_reached_twice_is_listed_under_its_real_name(tmp_path: Path) -> None:
    touch(tmp_path, "zebra/one.jpg")
    os.symlink(tmp_path / "zebra", tmp_path / "alias")
    assert below(tmp_path) == ["zebra/one.jpg"]


def test_many_links_to_each_other_end(tmp_path: Path) -> None:
    for number in range(12):  # following each would list 2 ** 12 folders
        touch(tmp_path, f"level{number}/image.jpg")
        for name in ("left", "right"):
            os.symlink(tmp_path / f"level{number + 1}", tmp_path / f"level{number}" / name)
    assert len(list_images(tmp_path)) == 12


def test_broken_links_are_listed_to_be_reported(tmp_path: Path) -> None:
    os.symlink("nowhere", tmp_path / "broken.jpg")
    os.symlink("loop.jpg", tmp_path / "loop.jpg")
    assert below(tmp_path) == ["broken.jpg", "loop.jpg"]


def test_names_that_are_not_utf8_survive(tmp_path: Path) -> None:
    name = b"caf\xe9.jpg"
    with open(os.path.join(os.fsencode(tmp_path), name), "wb"):
        pass
    assert [os.fsencode(path) for path in below(tmp_path)] == [name]


def test_first_folder_is_the_class_and_lone_folders_are_stepped_into(tmp_path: Path) -> None:
    touch(tmp_path, "amazon/images/bike/1.jpg", "amazon/images/mug/blue/2.jpg")
    assert [row.label for row in read_folder(tmp_path / "amazon").rows] == ["bike", "mug"]


def test_images_in_no_folder_have_no_label(tmp_path: Path) -> None:
    touch(tmp_path, "1.jpg", "bike/2.jpg")
    assert [row.label for row in read_folder(tmp_path).rows] == [None, "bike"]


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    touch(tmp_path, "bike/readme.txt")
    with pytest.raises(DataError, match="no image"):
        read_folder(tmp_path)
