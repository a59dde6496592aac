"""Small files of very many parts: refused by their markers, before a decoder works through them."""

from __future__ import annotations

import io
import struct
import time
import zlib
from pathlib import Path

import pytest

from hostile_images import encoded, noise
from pmtrans.data.image import UnreadableImage, load_image, receive_image
from pmtrans.data.image_parts import MAX_GIF_PARTS, MAX_PARTS, MAX_SCANS

SCAN, END = b"\xff\xda", b"\xff\xd9"


def with_last_scan_repeated(jpeg: bytes, times: int) -> bytes:
    """Decoders take it, and go over all pixels as often."""
    last = jpeg.rindex(SCAN)
    return jpeg[:-2] + jpeg[last:-2] * times + END


def refused(data: bytes, path: Path) -> str:
    path.write_bytes(data)
    begin = time.process_time()
    with pytest.raises(UnreadableImage) as caught:
        load_image(str(path))
    assert time.process_time() - begin < 0.5
    return caught.value.reason


def test_a_progressive_jpeg_of_thousands_of_scans_is_refused(tmp_path: Path) -> None:
    jpeg = with_last_scan_repeated(encoded(noise(0, (64, 64), "L"), "JPEG", progressive=True), 3 * MAX_SCANS)
    assert "scans or more is too costly" in refused(jpeg, tmp_path / "x.jpg")
    with pytest.raises(UnreadableImage, match="scans or more is too costly"):
        receive_image(io.BytesIO(jpeg), "uploaded.jpg")


def test_fewer_scans_are_too_many_for_a_large_image(tmp_path: Path) -> None:
    large = with_last_scan_repeated(encoded(noise(0, (7_000, 7_000), "L"), "JPEG", progressive=True, quality=5), 50)
    assert "scans or more is too costly" in refused(large, tmp_path / "x.jpg")


def test_scans_of_single_components_can_be_repeated_too(tmp_path: Path) -> None:
    """A sequential JPEG whose first scan lacks a component is held in memory and decoded scan by scan."""
    jpeg = encoded(noise(0, (64, 64)), "JPEG", subsampling=0)
    at = jpeg.index(SCAN)
    one = jpeg[:at] + SCAN + struct.pack(">HBBBBBB", 8, 1, 1, 0, 0, 63, 0) + jpeg[at + 14 : -2]
    again = one[one.index(SCAN) :]
    assert "scans or more is too costly" in refused(one + again * MAX_SCANS + END, tmp_path / "x.jpg")


@pytest.mark.parametrize("progressive", [False, True])
def test_marks_of_scans_in_thumbnails_and_behind_the_end_are_no_scans(tmp_path: Path, progressive: bool) -> None:
    thumbnail = b"Exif\0\0" + SCAN * 20_000
    jpeg = encoded(noise(0), "JPEG", progressive=progressive, exif=thumbnail) + SCAN * 20_000
    (tmp_path / "x.jpg").write_bytes(jpeg)
    assert load_image(str(tmp_path / "x.jpg")).size == noise(0).size


def test_a_jpeg_of_countless_comments_is_refused(tmp_path: Path) -> None:
    jpeg = encoded(noise(0), "JPEG")
    comments = b"\xff\xfe\x00\x02" * (MAX_PARTS + 1)
    assert "parts: save it anew" in refused(jpeg[:2] + comments + jpeg[2:], tmp_path / "x.jpg")


def test_a_png_of_countless_chunks_is_refused(tmp_path: Path) -> None:
    png = encoded(noise(0), "PNG")
    chunk = struct.pack(">I", 0) + b"teXt" + struct.pack(">I", zlib.crc32(b"teXt"))
    assert "parts: save it anew" in refused(png[:33] + chunk * MAX_PARTS + png[33:], tmp_path / "x.png")


def test_a_gif_of_countless_comments_is_refused(tmp_path: Path) -> None:
    gif = encoded(noise(0), "GIF")
    begin = gif.index(b",", 13 + 3 * (2 << gif[10] % 8))
    assert "parts: save it anew" in refused(
        gif[:begin] + b"!\xfe\x01x\0" * MAX_GIF_PARTS + gif[begin:], tmp_path / "x.gif"
    )
