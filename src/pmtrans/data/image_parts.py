"""The parts that an image file is made of, counted before a decoder sees them.

A decoder goes once over all pixels for every scan of a JPEG, and Pillow steps through the parts of a file one by one.
Both may be a few bytes each, so that a small file could occupy a decoder for minutes. Of an ordinary photograph only
the markers before its first scan are read; of one in several scans, the markers between them too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

from pmtrans.errors import DataError

MAX_SCANS = 500  # what the authors of libjpeg-turbo advise
MAX_SCANNED = 2_000_000_000  # scans x pixels: the largest image of the gate in the ten scans that are usual
MAX_PARTS = 100_000
MAX_GIF_PARTS = 5_000  # before the first image: Pillow joins comments in quadratic time

_CHUNK = 1 << 16
_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")  # not data (ff 00), a restart (ff d0 to d7) or filling (ff ff)
_WITHOUT_LENGTH = (0x01, 0xD8)
_END, _SCAN = 0xD9, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})


def refuse_many_parts(file: IO[bytes]) -> None:
    """Refuse an image of far more parts than any camera or program writes; the file is left at its beginning."""
    start = file.read(8)
    if start.startswith(b"\xff\xd8"):
        _refuse_many_scans(file)
    elif start.startswith(b"\x89PNG"):
        _refuse_many(_png_chunks(file), MAX_PARTS)
    elif start.startswith(b"GIF8"):
        _refuse_many(_gif_blocks(file), MAX_GIF_PARTS)
    file.seek(0)


def _refuse_many(parts: Iterator[object], limit: int) -> None:
    for number, _ in enumerate(parts, start=1):
        if number > limit:
            raise DataError(f"is made of more than {limit} parts: save it anew")


def _refuse_many_scans(file: IO[bytes]) -> None:
    pixels = components = scans = 0
    is_progressive = False
    for number, (marker, position) in enumerate(_jpeg_markers(file)):
        if number >= MAX_PARTS:
            raise DataError(f"is made of more than {MAX_PARTS} parts: save it anew")
        if marker in _FRAMES:
            frame = _read_at(file, position, 8)
            pixels = int.from_bytes(frame[3:5], "big") * int.from_bytes(frame[5:7], "big")
            components = frame[7] if len(frame) == 8 else 0
            is_progressive = marker in _PROGRESSIVE
        elif marker == _SCAN:
            scans += 1
            if not is_progressive and scans == 1 and _read_at(file, position, 3)[2:] == bytes([components]):
                return  # one scan holds all: a decoder accepts no other
            if scans > MAX_SCANS or scans * pixels > MAX_SCANNED:
                raise DataError(f"a JPEG of {scans} scans or more is too costly at its size: save it anew")


def _jpeg_markers(file: IO[bytes]) -> Iterator[tuple[int, int]]:
    """(marker, place after it), found as decoders find them: by the lengths of parts, and past anything else."""
    position = begin = 2
    chunk = b""
    while True:
        found = _MARKER.search(chunk, position - begin)
        while found is None:
            begin = position = max(position, begin + len(chunk) - 1)  # the last byte may begin a marker
            chunk = _read_at(file, begin, _CHUNK)
            if len(chunk) < 2:
                return
            found = _MARKER.search(chunk)
        marker, position = chunk[found.end() - 1], begin + found.end()
        if marker == _END:
            return
        yield marker, position
        if marker not in _WITHOUT_LENGTH:
            length = chunk[found.end() : found.end() + 2]
            if len(length) < 2:
                length = _read_at(file, position, 2)
            position += max(2, int.from_bytes(length, "big"))


def _png_chunks(file: IO[bytes]) -> Iterator[int]:
    position = 8
    while len(head := _read_at(file, position, 8)) == 8 and head[4:] != b"IEND":
        yield position
        position += 12 + int.from_bytes(head[:4], "big")


def _gif_blocks(file: IO[bytes]) -> Iterator[int]:
    """The blocks of all extensions before the first image."""
    flags = _read_at(file, 10, 1)
    position = 13 + (3 << (flags[0] % 8 + 1) if flags and flags[0] & 128 else 0)
    while len(head := _read_at(file, position, 2)) == 2 and head[:1] not in (b",", b";"):
        if head[:1] != b"!":  # Pillow passes over it
            yield position
            position += 1
            continue
        position += 2
        while (length := _read_at(file, position, 1)) not in (b"", b"\0"):
            yield position
            position += 1 + length[0]
        yield position
        position += 1


def _read_at(file: IO[bytes], position: int, length: int) -> bytes:
    file.seek(position)
    return file.read(length)
