"""A folder of files as bad as people have them: which can be read, and which cannot."""

from __future__ import annotations

import io
import os
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


@dataclass
class Hostile:
    """Paths of the readable and of the unreadable files; everything else in the folder is no image."""

    good: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)


def noise(seed: int, size: tuple[int, int] = (40, 32), mode: str = "RGB") -> Image.Image:
    """An image like no other, so that nothing is a duplicate by accident."""
    shape = (8, 10, 3)
    coarse = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.NEAREST).convert(mode)


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    """The bytes of an image file."""
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def with_orientation(orientation: int) -> Image.Exif:
    """EXIF data that says how the camera was held."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def png_that_claims(width: int, height: int) -> bytes:
    """A decompression bomb: a few bytes that say they are a huge image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def make_hostile_folder(folder: Path) -> Hostile:
    """Fill two class folders with hostile files."""
    made = Hostile()
    places = [folder / "bike", folder / "mug"]
    for place in places:
        place.mkdir(parents=True)
    counter = iter(range(10_000))

    def place_for(name: str | bytes) -> str:
        place = os.fsencode(places[next(counter) % 2])
        return os.fsdecode(os.path.join(place, os.fsencode(name)))

    def write(kept: list[str], name: str | bytes, data: bytes) -> None:
        path = place_for(name)
        with open(path, "wb") as file:
            file.write(data)
        kept.append(path)

    jpeg, png = encoded(noise(0, (160, 120)), "JPEG"), encoded(noise(1, (160, 120)), "PNG")
    for eighth in range(1, 8):
        write(made.bad, f"truncated_{eighth}.jpg", jpeg[: len(jpeg) * eighth // 8])
        write(made.bad, f"truncated_{eighth}.png", png[: len(png) * eighth // 8])
    for format, suffix in (("WEBP", "webp"), ("TIFF", "tif"), ("BMP", "bmp"), ("GIF", "gif")):
        data = encoded(noise(2, (160, 120)), format)
        write(made.bad, f"half.{suffix}", data[: len(data) // 2])
    write(made.bad, "empty.jpg", b"")
    write(made.bad, "text.jpg", b"<html>404 Not Found</html>")
    write(made.bad, "random.png", np.random.default_rng(0).bytes(500))
    write(made.bad, "bomb.png", png_that_claims(60_000, 60_000))
    write(
        made.bad,
        "flipped.png",
        png[: len(png) // 2] + bytes([png[len(png) // 2] ^ 0xFF]) + png[len(png) // 2 + 1 :],
    )
    for name, link in (("broken_link.jpg", "nowhere.jpg"), ("link_loop.jpg", "link_loop.jpg")):
        path = place_for(name)
        os.symlink(link, path)
        made.bad.append(path)
    pipe = place_for("pipe.jpg")
    os.mkfifo(pipe)
    made.bad.append(pipe)

    for orientation in range(1, 9):
        data = encoded(noise(10 + orientation), "JPEG", exif=with_orientation(orientation))
        write(made.good, f"exif_{orientation}.jpg", data)
    sixteen = np.random.default_rng(3).integers(0, 65536, (30, 40), dtype=np.uint16)
    pages = [noise(seed) for seed in (30, 31, 32)]
    readable: dict[str | bytes, bytes] = {
        "one.png": encoded(noise(40, (1, 1)), "PNG"),
        "long.png": encoded(noise(41, (30_000, 1)), "PNG"),
        "sixteen.png": encoded(Image.fromarray(sixteen), "PNG"),
        "sixteen.tif": encoded(Image.fromarray(sixteen[::-1]), "TIFF"),
        "float.tiff": encoded(Image.fromarray((sixteen / 65535).astype(np.float32)[:, ::-1]), "TIFF"),
        "cmyk.jpg": encoded(noise(42, mode="CMYK"), "JPEG"),
        "grey.jpg": encoded(noise(43, mode="L"), "JPEG"),
        "progressive.jpeg": encoded(noise(44), "JPEG", progressive=True),
        "animated.gif": encoded(pages[0], "GIF", save_all=True, append_images=pages[1:]),
        "pages.tif": encoded(pages[1], "TIFF", save_all=True, append_images=pages),
        "alpha.png": encoded(noise(45, mode="RGBA"), "PNG"),
        "grey_alpha.png": encoded(noise(46, mode="LA"), "PNG"),
        "palette.png": encoded(noise(47, mode="P"), "PNG", transparency=0),
        "bilevel.png": encoded(noise(48, mode="1"), "PNG"),
        "lossless.webp": encoded(noise(49), "WEBP", lossless=True),
        "windows.BMP": encoded(noise(50), "BMP"),
        "portable.ppm": encoded(noise(51), "PPM"),
        "really_a_png.jpg": encoded(noise(52), "PNG"),
        "broken_exif.jpg": encoded(noise(53), "JPEG", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff"),
        "two words.jpg": encoded(noise(54), "JPEG"),
        "two\nlines.jpg": encoded(noise(55), "JPEG"),
        "[red]brackets[bold].jpg": encoded(noise(56), "JPEG"),
        "-quote'\"%s{}.jpg": encoded(noise(57), "JPEG"),
        "Ünïcödé 写真.jpg": encoded(noise(58), "JPEG"),
        b"latin\xe9\xff.jpg": encoded(noise(59), "JPEG"),
    }
    for readable_name, data in readable.items():
        write(made.good, readable_name, data)
    link = place_for("good_link.jpg")
    os.symlink(made.good[0], link)
    made.good.append(link)

    # No images, whatever they are called.
    (places[0] / "x.jpg").mkdir()
    (places[0] / "notes.txt").write_text("hello")
    (places[0] / "._mac.jpg").write_bytes(b"\0\5\26\7")
    os.symlink("..", places[0] / "up")
    os.symlink(places[1], places[1] / "round")
    return made
