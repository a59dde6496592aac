"""Images that cost much, and machines that cannot read: refused before decoding, and never left out in silence."""

from __future__ import annotations

import errno
import io
import os
import resource
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pmtrans.data import gate, image
from pmtrans.data.checking.readable import fast_check
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.gate import UnavailableImage
from pmtrans.data.image import UnreadableImage, load_image
from pmtrans.data.reading.read import Target

COLOUR, GREY = 2, 0


def png_of_zeros(path: Path, width: int, height: int, bits: int = 8, kind: int = COLOUR) -> str:
    """A real image of black pixels: few bytes that would decode to many."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    row = b"\0" * (1 + width * (3 if kind == COLOUR else 1) * bits // 8)
    data = zlib.compress(row * min(height, 300))  # a tall one is cut off: its header comes first
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b""))
    return str(path)


@pytest.mark.parametrize(
    ("width", "height", "bits", "kind", "reason"),
    [
        (5_000_000, 1, 8, COLOUR, "side of more than 65535 pixels"),
        (1, 66_000, 8, GREY, "side of more than 65535 pixels"),
        (60_000, 200, 8, GREY, "more than 250 times as long as wide"),
        (13_300, 13_300, 16, GREY, "more than 44739242 pixels at this depth"),
    ],
)
def test_a_small_file_with_a_large_cost_is_refused_before_it_is_decoded(
    tmp_path: Path, width: int, height: int, bits: int, kind: int, reason: str
) -> None:
    path = png_of_zeros(tmp_path / "x.png", width, height, bits, kind)
    begin = time.process_time()
    with pytest.raises(UnreadableImage, match=reason):
        load_image(path)
    assert time.process_time() - begin < 0.5


def test_large_photographs_and_deep_scans_are_still_read(tmp_path: Path) -> None:
    wide = png_of_zeros(tmp_path / "wide.png", 5_000, 20, 8, GREY)
    deep = png_of_zeros(tmp_path / "deep.png", 600, 600, 16, GREY)
    assert load_image(wide).size == (5_000, 20)
    assert load_image(deep).size == (600, 600)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EIO, errno.ESTALE])
def test_what_is_the_machines_fault_is_not_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "fine.png"
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(path)

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(image, "decode_image", fail)
    with pytest.raises(UnavailableImage, match=r"cannot be read now: .*\. No image was left out because of it\.$"):
        load_image(str(path))


def test_memory_that_runs_out_is_not_the_images_fault() -> None:
    assert not gate.is_of_the_file(MemoryError())
    assert gate.is_of_the_file(OSError("image file is truncated (3 bytes not processed)"))
    assert gate.is_of_the_file(FileNotFoundError(errno.ENOENT, "gone"))
    assert gate.is_of_the_file(ValueError("embedded null byte"))


def test_no_image_is_left_out_because_descriptors_ran_out(tmp_path: Path) -> None:
    """Real descriptors, really taken: the check that ``on_bad_image=skip`` acts on must stop instead."""
    paths = []
    for number in range(6):
        paths.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(paths[-1])
    source = LabelledDomain(Domain(tmp_path, tuple(paths)), (0,) * 6, ("a",))
    target = Target(Domain(tmp_path, tuple(paths)), None, ())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        with pytest.raises(UnavailableImage, match="too many open files"):
            fast_check(source, target, workers=1)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert fast_check(source, target, workers=1).bad == []


def test_an_upload_passes_the_same_gate(tmp_path: Path) -> None:
    data = Path(png_of_zeros(tmp_path / "x.png", 5_000_000, 1)).read_bytes()
    with pytest.raises(UnreadableImage, match="side of more than"):
        image.receive_image(io.BytesIO(data), "x.png")
