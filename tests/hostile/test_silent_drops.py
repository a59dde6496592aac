"""Nothing is dropped in silence: links in shards, classes that look like numbers, formats and folders left out."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from pmtrans.data.packing import PackOptions, pack_folder
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.data.reading.several import read_sources, source_warnings
from pmtrans.errors import DataError
from shards_by_hand import picture
from tiny_data import write_domain


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMTRANS_CACHE", str(tmp_path / "cache"))


def write_members(path: Path, members: dict[str, bytes | tuple[bytes, str]]) -> Path:
    """Plain files, and (kind, link target) for others."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                member.type, member.linkname = content
                tar.addfile(member)
            else:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    ("kind", "said"),
    [(tarfile.LNKTYPE, "a link inside it"), (tarfile.SYMTYPE, "a link inside it"), (tarfile.FIFOTYPE, "no plain file")],
)
@pytest.mark.parametrize("name", ["b.png", "a.cls"])
def test_a_member_that_is_no_plain_file_is_refused(tmp_path: Path, kind: bytes, said: str, name: str) -> None:
    shard = write_members(tmp_path / "x.tar", {"a.png": picture(1), name: (kind, "a.png"), "notes": (kind, "a.png")})
    with pytest.raises(DataError, match=rf"{name} is {said}: pack it with tar --dereference"):
        read_target(shard, ["a", "b"])


def test_links_that_are_no_images_and_long_targets_of_links_do_no_harm(tmp_path: Path) -> None:
    long = "very/" * 50 + "long.png"
    shard = write_members(
        tmp_path / "x.tar", {"readme": (tarfile.SYMTYPE, long), long: picture(1), "b.png": picture(2)}
    )
    assert [path.rpartition("@")[2].partition("/")[2] for path in read_target(shard, []).domain.paths] == [
        "b.png",
        long,
    ]


@pytest.mark.parametrize("end", [512, 1024, 10_240])  # bytes of zeros between the two
def test_what_follows_the_end_of_a_tar_is_not_dropped(tmp_path: Path, end: int) -> None:
    first, second = (write_members(tmp_path / f"{name}.tar", {f"{name}.png": picture(1)}).read_bytes() for name in "ab")
    shard = tmp_path / "x.tar"
    shard.write_bytes(first.rstrip(b"\0") + bytes(-len(first.rstrip(b"\0")) % 512 + end) + second)
    with pytest.raises(DataError, match=r"x\.tar: it continues after the mark of its end .*: join tars with tar -A"):
        read_target(shard, [])
    shard.write_bytes(first + bytes(3_000_000))
    assert len(read_target(shard, []).domain) == 1


@pytest.mark.parametrize("classes", [["007", "7", "-1"], ["-1", "0"], ["7.0", "7"], [" a b", "a b"], ["\udcff", "x"]])
def test_classes_come_back_from_shards_as_they_were(tmp_path: Path, classes: list[str]) -> None:
    folder = write_domain(tmp_path / "shop", classes, 2, tint=0)
    pack_folder(folder, tmp_path / "shards", PackOptions())
    expected = read_source(folder)
    for _ in range(2):  # made, then from the cache
        packed = read_source(tmp_path / "shards")
        assert (packed.classes, packed.labels) == (expected.classes, expected.labels)
    assert set(packed.classes) == set(classes)


def test_classes_with_folders_of_their_own_come_back_too(tmp_path: Path) -> None:
    for number, inner in ((1, "east"), (2, "west")):
        write_domain(tmp_path / "shop" / str(number), [inner], 2, tint=number)
    pack_folder(tmp_path / "shop", tmp_path / "shards", PackOptions())
    assert read_source(tmp_path / "shards").classes == read_source(tmp_path / "shop").classes == ("1", "2")


def test_numbers_beside_images_in_no_folder_are_still_ids(tmp_path: Path) -> None:
    members = {"1.png": picture(1), "1.cls": b"007\n", "2.png": picture(2), "2.CLS": b"8"}
    assert read_source(write_members(tmp_path / "x.tar", {**members})).classes == ("7", "8")


def left_out(folder: Path) -> list[str]:
    return [warning for warning in source_warnings(read_sources([folder])) if ": left out: " in warning]


def test_what_lies_in_a_folder_and_is_not_read_is_told(tmp_path: Path) -> None:
    folder = write_domain(tmp_path / "shop", ["ant", "bee", ".cow"], 2, tint=0)
    assert left_out(folder) == [
        f"{folder}: left out: 1 hidden folders with images, such as .cow: rename them to use them"
    ]
    for name in ("1.jp2", "2.JXL", "3.tga"):
        (folder / "ant" / name).write_bytes(b"")
    for name in ("dog", "elk"):
        (folder / name / "inner").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "ant" / "notes.txt").write_text("x")
    said = left_out(folder)
    assert len(said) == 3
    assert "3 files of formats that cannot be read, such as " in said[0]
    assert "2 folders without an image, such as dog: they become no class" in said[2]
    target = read_target(folder, ["ant", "bee"])
    assert [warning for warning in target.warnings if ": left out: " in warning] == said[:2]


def test_hidden_images_and_files_without_the_extension_of_one_are_told(tmp_path: Path) -> None:
    folder = write_domain(tmp_path / "shop", ["ant", "bee"], 2, tint=0)
    for name in (".4.png", ".5.JPG", "6", "7.bin", "8.png_", "9.PNG "):
        (folder / "ant" / name).write_bytes(picture(1))
    expected = [
        f"{folder}: left out: 4 files without the extension of an image, such as 6: rename those that are images",
        f"{folder}: left out: 2 hidden images, such as .4.png: rename them to use them",
    ]
    assert left_out(folder) == expected
    assert list(read_target(folder, ["ant", "bee"]).warnings) == expected


def test_what_usually_lies_beside_images_is_not_told(tmp_path: Path) -> None:
    folder = write_domain(tmp_path / "shop", ["ant", "bee"], 2, tint=0)
    beside = (".DS_Store", "Thumbs.db", "desktop.ini", "Icon\r", "._0.png", ".gitignore", "README", "LICENSE")
    for name in (*beside, "labels.csv", "notes.txt", "0.json", "0.xml", "0.XMP", "0.npy"):
        (folder / "ant" / name).write_bytes(b"x")
    for name in ("__MACOSX", "@eaDir"):
        write_domain(folder / "ant" / name, ["x"], 1, tint=0)
    assert left_out(folder) == []


def test_hidden_images_and_files_that_are_none_are_told_of_a_shard(tmp_path: Path) -> None:
    labelled = {"1.png": picture(1), "1.cls": b"ant", "2.png": picture(2), "2.cls": b"bee"}
    hidden = {".old/3.png": picture(3), "a/.4.png": picture(4), ".old/notes": b"x"}
    beside = {"__MACOSX/5.png": picture(5), "a/._1.png": b"x", ".gitignore": b"x", "1.txt": b"x", "README": b"x"}
    shard = write_members(tmp_path / "x.tar", {**labelled, **hidden, **beside, "a/6": b"x"})
    for _ in range(2):  # made, then from the cache
        assert left_out(shard) == [
            f"{shard}: left out: 1 files without the extension of an image, such as 6: rename those that are images",
            f"{shard}: left out: 2 hidden images, such as .old/3.png: rename them to use them",
        ]


def test_what_lies_in_a_shard_and_is_not_read_is_told(tmp_path: Path) -> None:
    kinds = enumerate([("a", "png"), ("b", "png"), ("a", "jp2"), ("b", "jp2")])
    members = {f"{label}/{number}.{suffix}": picture(number) for number, (label, suffix) in kinds}
    members |= {f"{name.partition('.')[0]}.cls": name[:1].encode() for name in members}
    shard = write_members(tmp_path / "x.tar", {**members})
    for _ in range(2):  # made, then from the cache
        assert left_out(shard) == [
            f"{shard}: left out: 2 files of formats that cannot be read, such as 2.jp2: convert them"
        ]


def test_a_folder_of_other_formats_alone_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.jp2").write_bytes(b"")
    with pytest.raises(DataError, match=r"no image in this folder or below it \(.*1 files of formats"):
        read_source(tmp_path)
