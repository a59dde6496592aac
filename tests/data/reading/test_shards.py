"""Images in tar and Parquet shards: the same domain as from a folder, read at random, never unpacked."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from pmtrans.data.gate import UnavailableImage
from pmtrans.data.image import UnreadableImage, load_image
from pmtrans.data.packed import image_bytes, open_image, packed_image
from pmtrans.data.packing import PackOptions, pack_folder
from pmtrans.data.reading import shard_index
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.errors import DataError
from shards_by_hand import picture, write_tar
from tiny_data import write_domain


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PMTRANS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "shards"


def content(path: str) -> bytes:
    with open_image(path) as file:
        return file.read()


def labelled(number: int, label: str) -> dict[str, bytes]:
    return {f"{number:04d}.png": picture(number), f"{number:04d}.cls": label.encode()}


def test_keys_and_labels_of_a_webdataset_tar(tmp_path: Path) -> None:
    files = {
        "./b/one.png": picture(1), "./b/one.cls": b"wasp\n",
        "b/two.v2.jpg": picture(2), "b/two.json": json.dumps({"caption": "", "label": "bee"}).encode(),
        "long/" + 120 * "n" + ".png": picture(3), "long/" + 120 * "n" + ".cls": b"bee",
        "ünï.png": picture(4), "ünï.cls": b"wasp",
        "._hidden.png": picture(5), "__key__": b"", "b/one.txt": b"a caption",
    }  # fmt: skip
    for format in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        kept = {name: data for name, data in files.items() if format != tarfile.USTAR_FORMAT or len(name) < 100}
        source = read_source(write_tar(tmp_path / f"{format}.tar", kept, format))
        names = ["b/one.png", "b/two.v2.jpg", "long/" + 120 * "n" + ".png", "ünï.png"]
        names = [name for name in names if name in kept or f"./{name}" in kept]
        assert [packed.name for path in source.paths if (packed := packed_image(path))] == names
        classes = ["wasp", "bee", "bee", "wasp"] if len(names) == 4 else ["wasp", "bee", "wasp"]
        assert [source.classes[label] for label in source.labels] == classes
        assert [content(path) for path in source.paths] == [files.get(n, files.get(f"./{n}")) for n in names]
        assert load_image(source.paths[0]).size == (12, 12)


def test_ranges_and_stars_name_the_same_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        write_tar(tmp_path / "shards" / f"shop-{number:03d}.tar", labelled(number, "ab"[number % 2]))
    monkeypatch.chdir(tmp_path)
    ranged, starred = read_source("shards/shop-{000..011}.tar"), read_source(Path("shards/*.tar"))
    assert ranged.paths == starred.paths
    assert len(ranged) == 12
    assert [path.split("/@")[0] for path in ranged.paths] == [f"shards/shop-{n:03d}.tar" for n in range(12)]
    assert len(read_source("shards/shop-00{2,5}.tar")) == 2


def test_a_pack_is_the_same_domain_as_its_folder(tmp_path: Path) -> None:
    folder = write_domain(tmp_path / "shop", ["ant", "bee", "cat"], 7, tint=20)
    pack_folder(folder, tmp_path / "shards", PackOptions(images_per_shard=4))
    one, other = read_source(folder), read_source(tmp_path / "shards")
    assert (one.labels, one.classes) == (other.labels, other.classes)
    assert [content(path) for path in one.paths] == [content(path) for path in other.paths]
    first = read_target(folder, ["bee", "ant", "dog"])
    second = read_target(str(tmp_path / "shards" / "shop-{000..005}.tar"), ["bee", "ant", "dog"])
    assert [content(path) for path in first.domain.paths] == [content(path) for path in second.domain.paths]
    assert first.labelled is not None
    assert second.labelled is not None
    assert first.labelled.labels == second.labelled.labels
    assert first.unknown_classes == second.unknown_classes == (("cat", 7),)


def test_the_order_of_a_target_does_not_depend_on_labels_or_shards(tmp_path: Path) -> None:
    pictures = {f"{number}.png": picture(number) for number in range(6)}
    write_tar(tmp_path / "one.tar", pictures)
    write_tar(tmp_path / "parts" / "b.tar", {f"x/{name}": data for name, data in list(pictures.items())[:3]})
    rest = {f"y/{name}": data for name, data in list(pictures.items())[3:]}
    write_tar(tmp_path / "parts" / "a.tar", {**rest, "y/5.cls": b"bee"})
    one, other = (
        read_target(place, ["ant", "bee"]).domain for place in (tmp_path / "one.tar", tmp_path / "parts/*.tar")
    )
    assert [content(path) for path in one.paths] == [content(path) for path in other.paths]


def test_an_index_is_made_once_and_again_when_the_shard_changes(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    read_index = shard_index.read_index

    def counted(file, size, shard, label_key=None):  # type: ignore[no-untyped-def]
        made.append(shard)
        return read_index(file, size, shard, label_key)

    monkeypatch.setattr(shard_index, "read_index", counted)
    shard = write_tar(tmp_path / "a.tar", {**labelled(1, "x"), **labelled(2, "y")})
    first, again = read_source(shard), read_source(shard)
    assert (first, len(made)) == (again, 1)
    write_tar(shard, {**labelled(1, "x"), **labelled(2, "y"), **labelled(3, "x")})
    assert (len(read_source(shard)), len(made)) == (3, 2)
    [kept] = cache.glob("*.index")
    kept.write_bytes(kept.read_bytes()[:-40])
    assert (len(read_source(shard)), len(made)) == (3, 3)


def test_a_label_column_names_the_key_of_the_json(tmp_path: Path) -> None:
    files: dict[str, bytes] = {}
    for number, kind in enumerate(("p", "q")):
        meta = {"label": 7, "kind": kind}
        files |= {f"{number}.png": picture(number), f"{number}.json": json.dumps(meta).encode()}
    shard = write_tar(tmp_path / "a.tar", files)
    assert read_source(shard, label_column="kind").classes == ("p", "q")
    with pytest.raises(DataError, match="only one class, '7'"):
        read_source(shard)


@pytest.mark.parametrize("cut", [700, -1024, -1600])
def test_a_truncated_tar_is_one_line(tmp_path: Path, cut: int) -> None:
    shard = write_tar(tmp_path / "a.tar", {**labelled(1, "x"), **labelled(2, "y")}, tarfile.USTAR_FORMAT)
    with tarfile.open(shard) as tar:
        last = tar.getmembers()[-1]
    whole = shard.read_bytes()[: last.offset_data + 512 + 1024]
    shard.write_bytes(whole[:cut])
    with pytest.raises(DataError, match=r"a\.tar: truncated: it ends (inside 000[12]\.|after \d+ bytes without)"):
        read_source(shard)


def test_what_is_no_tar_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "noise.tar").write_bytes(b"nothing of a tar" * 100)
    (tmp_path / "gzip.tar").write_bytes(b"\x1f\x8b" + bytes(1000))
    damaged = write_tar(tmp_path / "damaged.tar", {**labelled(1, "x"), **labelled(2, "y")}, tarfile.USTAR_FORMAT)
    with tarfile.open(damaged) as tar:
        third = tar.getmembers()[2].offset
    with damaged.open("r+b") as file:
        file.seek(third + 3)
        file.write(b"?")
    for name, reason in (("noise", "not a tar file"), ("gzip", "gunzip"), ("damaged", f"damaged at byte {third}")):
        with pytest.raises(DataError, match=reason):
            read_source(tmp_path / f"{name}.tar")


def test_a_tar_of_the_oldest_format_is_read(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", {**labelled(1, "x"), **labelled(2, "y")}, tarfile.USTAR_FORMAT)
    with tarfile.open(shard) as tar:
        offsets = [member.offset for member in tar.getmembers()]
    data = bytearray(shard.read_bytes())

    def as_oldest(header: bytes, name: bytes, size: bytes) -> bytes:
        fields = name.ljust(100, b"\0") + header[100:124] + size + header[136:148]
        rest = bytes(101) + bytes(255)
        return fields + b"%06o\0 " % (sum(fields) + sum(rest) + 8 * ord(" ")) + rest

    for offset in offsets:
        header = bytes(data[offset : offset + 512])
        data[offset : offset + 512] = as_oldest(header, header[:100], header[124:136])
    shard.write_bytes(as_oldest(bytes(512), b"inner.png/", b"00000000000\0") + data)
    source = read_source(shard)
    assert [source.classes[label] for label in source.labels] == ["x", "y"]
    assert [content(path) for path in source.paths] == [picture(1), picture(2)]
    assert source.warnings == ()


def test_labels_that_are_too_long_or_given_twice_are_one_line(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", {"1.png": picture(1), "1.cls": b"ant" * 400_000})
    with pytest.raises(DataError, match=r"a\.tar: 1\.cls: a label of 1200000 bytes, 1048576 allowed"):
        read_source(shard)
    for second in ("1.cls", "1.CLS"):
        with tarfile.open(shard, "w") as tar:
            for name, data in (("1.png", picture(1)), ("1.cls", b"ant"), (second, b"bee")):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        with pytest.raises(DataError, match=r"a\.tar: holds 1\.cls twice"):
            read_source(shard)


def test_two_shards_with_the_same_key_are_refused(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {**labelled(1, "x"), **labelled(2, "y")})
    write_tar(tmp_path / "b.tar", {**labelled(3, "x"), **labelled(2, "y")})
    with pytest.raises(DataError, match=r"a\.tar and \S+b\.tar: both hold 0002\.png"):
        read_source(tmp_path / "*.tar")


def test_missing_labels_shards_and_matches_are_one_line(tmp_path: Path) -> None:
    write_tar(tmp_path / "a-0.tar", {**labelled(1, "x"), "9.png": picture(9)})
    with pytest.raises(DataError, match=r"a-0\.tar: 1 images have no label, such as 9\.png"):
        read_source(tmp_path / "a-0.tar")
    with pytest.raises(DataError, match=r"a-1\.tar: there is no such file"):
        read_source(tmp_path / "a-{0..1}.tar")
    with pytest.raises(DataError, match="no file matches this pattern"):
        read_source(tmp_path / "b-*.tar")
    with pytest.raises(DataError, match="is empty or has more than"):
        read_source(tmp_path / "b-{9..3}.tar")


def test_a_shard_that_vanishes_or_is_replaced_stops_and_blames_no_image(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", {**labelled(1, "x"), **labelled(2, "y")})
    paths = read_source(shard).paths
    write_tar(shard, {**labelled(4, "x"), **labelled(2, "y")})
    with pytest.raises(UnavailableImage, match=r"it changed: 0001\.png is not where it was"):
        load_image(paths[0])
    shard.unlink()
    with pytest.raises(UnavailableImage, match="the shard vanished"):
        load_image(paths[0])


def test_a_broken_image_in_a_shard_is_that_images_fault(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", {"1.png": b"no image", "1.cls": b"x", **labelled(2, "y")})
    with pytest.raises(UnreadableImage, match="not an image") as raised:
        load_image(read_source(shard).paths[1])
    assert image_bytes(raised.value.path) == 8


def test_an_address_whose_package_is_missing_names_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^s3://bucket/a\.tar: s3:// needs a package: Install s3fs"):
        read_source("s3://bucket/a.tar")
    with pytest.raises(DataError, match=r"^nosuch://bucket/a\.tar: cannot be reached: Protocol not known: nosuch"):
        read_source(Path("nosuch://bucket/a.tar"))


def test_shards_elsewhere_are_read_by_ranges(tmp_path: Path) -> None:
    elsewhere = fsspec.filesystem("memory")
    for number in range(3):
        shard = write_tar(tmp_path / f"{number}.tar", {**labelled(2 * number, "x"), **labelled(2 * number + 1, "y")})
        elsewhere.pipe(f"/bucket/{number}.tar", shard.read_bytes())
    source = read_source(Path("memory://bucket/*.tar"))
    here = read_source(tmp_path / "{0..2}.tar")
    assert source.paths[0].startswith("memory://")
    assert [content(path) for path in source.paths] == [content(path) for path in here.paths]
    assert source.labels == here.labels
    assert read_source("memory://bucket/{0..2}.tar").labels == here.labels
    with pytest.raises(DataError, match=r"memory://bucket/9\.tar: there is no such file"):
        read_source("memory://bucket/9.tar")
    elsewhere.rm("/bucket/0.tar")
    with pytest.raises(UnavailableImage, match="the shard vanished"):
        load_image(source.paths[0])


def write_parquet(path: Path, first: int, struct: bool, names: list[str] | None = None) -> Path:
    pictures = [picture(number) for number in range(first, first + 4)]
    images = [{"bytes": data, "path": None} for data in pictures] if struct else pictures
    table = pa.table({"image": images, "label": [0, 1, 0, 1]})
    if names:
        features = {"label": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    parquet.write_table(table, path)
    return path


@pytest.mark.parametrize("struct", [False, True])
def test_parquet_with_image_bytes(tmp_path: Path, struct: bool) -> None:
    write_parquet(tmp_path / "part-0.parquet", 0, struct, ["cat", "dog"])
    write_parquet(tmp_path / "part-1.parquet", 4, struct, ["cat", "dog"])
    source = read_source(tmp_path / "part-{0..1}.parquet")
    assert len(source) == 8
    found = {content(path): source.classes[label] for path, label in zip(source.paths, source.labels, strict=True)}
    assert found == {picture(number): ["cat", "dog"][number % 2] for number in range(8)}
    alone = read_target(tmp_path / "part-0.parquet", ["dog", "cat"])
    assert len(alone.domain) == 4
    by_digest = [os.path.basename(path) for path in alone.domain.paths]
    assert by_digest == sorted(by_digest)


def test_parquet_without_images_or_labels_is_one_line(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"size": [1, 2]}), tmp_path / "a-0.parquet")
    with pytest.raises(DataError, match=r"a-0\.parquet: no column of image bytes; its columns are size"):
        read_source(tmp_path / "a-*.parquet")
    parquet.write_table(pa.table({"image": [picture(1)]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: no label column"):
        read_source(tmp_path / "b.parquet")
    parquet.write_table(pa.table({"image": [picture(1)] * 2, "label": ["x", None]}), tmp_path / "c.parquet")
    with pytest.raises(DataError, match=r"c\.parquet: 1 rows have no label, such as row 2"):
        read_source(tmp_path / "c.parquet")


def test_a_folder_called_like_a_pattern_is_a_folder(tmp_path: Path) -> None:
    write_domain(tmp_path / "a[1].tar", ["ant", "bee"], 2, tint=0)
    assert len(read_source(tmp_path / "a[1].tar")) == 4


def test_a_pixel_is_a_pixel(tmp_path: Path) -> None:
    shard = write_tar(tmp_path / "a.tar", {**labelled(1, "x"), **labelled(2, "y")})
    path = read_source(shard).paths[0]
    expected = np.random.default_rng(1).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(load_image(path)), expected)
    assert isinstance(load_image(path), Image.Image)
