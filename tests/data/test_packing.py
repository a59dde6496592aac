"""A folder packed into shards: the same bytes every time, resumed after an interruption, never half a shard."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pmtrans.cli import main
from pmtrans.data import packing
from pmtrans.data.image import load_image
from pmtrans.data.packing import PackOptions, pack_folder
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.errors import DataError, RunError
from pmtrans.signals import Interrupted, StopRequest
from tiny_data import write_domain


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMTRANS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return write_domain(tmp_path / "shop", ["ant", "bee"], 5, tint=0)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".tar", ".json")}


def test_a_folder_by_its_file_address_is_packed_like_its_path(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack_folder(shop, tmp_path / "expected", PackOptions())
    monkeypatch.setattr("sys.argv", ["pmtrans", "pack", shop.as_uri(), "--out", str(tmp_path / "out"), "--quiet"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "expected")


def test_members_are_the_files_and_their_class_folders(shop: Path, tmp_path: Path) -> None:
    packed = pack_folder(shop, tmp_path / "out", PackOptions(images_per_shard=4))
    assert (packed.images, packed.shards) == (10, ["shop-000.tar", "shop-001.tar", "shop-002.tar"])
    with tarfile.open(tmp_path / "out" / "shop-001.tar") as tar:
        members = {member.name: tar.extractfile(member) for member in tar}
        assert list(members) == [
            "ant/004.png", "ant/004.cls", "bee/000.png", "bee/000.cls",
            "bee/001.png", "bee/001.cls", "bee/002.png", "bee/002.cls",
        ]  # fmt: skip
        content = {name: file.read() for name, file in members.items() if file}
    assert content["ant/004.cls"] == b"ant"
    assert content["bee/001.png"] == (shop / "bee" / "001.png").read_bytes()


def test_an_interrupted_packing_is_resumed_and_ends_with_the_same_bytes(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = PackOptions(images_per_shard=3)
    pack_folder(shop, tmp_path / "whole", options)
    stop = StopRequest()
    stop.signal = 15
    with pytest.raises(Interrupted):
        pack_folder(shop, tmp_path / "out", options, stop=stop)
    assert [path.name for path in (tmp_path / "out").glob("*.tar")] == ["shop-000.tar"]
    (tmp_path / "out" / ".shop-001.tar.999.tmp").write_bytes(b"half of a shard, of a killed process")
    assert pack_folder(shop, tmp_path / "out", options).kept == 1
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "whole")
    assert not list((tmp_path / "out").glob(".*tmp"))
    assert pack_folder(shop, tmp_path / "out", options).kept == 4


def test_a_failure_inside_a_shard_leaves_none(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(packing, "add_file", fail)
        with pytest.raises(OSError, match="No space left"):
            pack_folder(shop, tmp_path / "out", PackOptions())
    assert not list((tmp_path / "out").glob("*.tar"))


def test_other_options_or_images_are_refused_unless_overwritten(shop: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    pack_folder(shop, out, PackOptions(images_per_shard=2))
    with pytest.raises(RunError, match=r"holds other shards \(shop-000\.tar\): choose another --out"):
        pack_folder(shop, out, PackOptions(images_per_shard=5))
    pack_folder(shop, out, PackOptions(images_per_shard=5), overwrite=True)
    assert sorted(path.name for path in out.glob("*.tar")) == ["shop-000.tar", "shop-001.tar"]
    (out / "foreign.tar").write_bytes(b"")
    with pytest.raises(RunError, match=r"foreign\.tar was not written by pack"):
        pack_folder(shop, out, PackOptions(), overwrite=True)


def test_larger_images_are_scaled_down_and_smaller_ones_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    random = np.random.default_rng(0)
    for name, size in (("a/big.jpg", (60, 40)), ("a/small.png", (20, 16)), ("b/other.bmp", (40, 80))):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(folder / name)
    pack_folder(folder, tmp_path / "out", PackOptions(size=20))
    source = read_source(tmp_path / "out")
    sizes = {path.rpartition("/")[2]: load_image(path).size for path in source.paths}
    assert sizes == {"big.jpg": (30, 20), "small.png": (20, 16), "other.bmp.png": (20, 40)}
    assert [source.classes[label] for label in source.labels] == ["a", "a", "b"]
    with tarfile.open(tmp_path / "out" / "shop-000.tar") as tar:
        assert tar.extractfile("a/small.png").read() == (folder / "a/small.png").read_bytes()  # type: ignore[union-attr]


def test_unreadable_images_stop_or_are_left_out(shop: Path, tmp_path: Path) -> None:
    (shop / "ant" / "002.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"ant/002\.png: not an image.*--skip-bad"):
        pack_folder(shop, tmp_path / "out", PackOptions(size=20))
    packed = pack_folder(shop, tmp_path / "other", PackOptions(size=20, skip_bad=True))
    assert (packed.found, packed.images) == (10, 9)
    assert json.loads((tmp_path / "other" / "pack.json").read_text())["images"] == 9


def test_without_labels_there_are_none(shop: Path, tmp_path: Path) -> None:
    pack_folder(shop, tmp_path / "out", PackOptions(unlabelled=True))
    assert read_target(tmp_path / "out", ["ant", "bee"]).labelled is None
    with pytest.raises(DataError, match="10 images have no label"):
        read_source(tmp_path / "out")


def test_a_folder_with_the_longest_name_is_packed(shop: Path, tmp_path: Path) -> None:
    packed = pack_folder(shop.rename(tmp_path / ("ü" * 127)), tmp_path / "out", PackOptions(images_per_shard=5))
    assert len(set(packed.shards)) == 2
    assert len(read_source(tmp_path / "out")) == 10


def test_the_verb_says_what_it_wrote(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop / "ant" / ".hidden.png").write_bytes(b"")
    monkeypatch.setattr("sys.argv", ["pmtrans", "pack", str(shop), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert capsys.readouterr().err.splitlines() == [
        f"warning: {shop}: left out: 1 hidden images, such as .hidden.png: rename them to use them",
        f"10 images in 1 shards: {tmp_path / 'out'}",
    ]
