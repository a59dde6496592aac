"""An image inside a shard, and the one way to the bytes of an image, wherever it lies.

The path of such an image is ``SHARD.tar/@OFFSET+LENGTH/NAME``, with the place of its bytes in the shard: whoever has
the path can read the image with one read, without an index and without unpacking anything. ``NAME`` is its name in the
shard, so that names, suffixes and folders of paths mean what they mean elsewhere.

What is wrong with a shard is no image's fault: a shard that vanished, was replaced or cannot be reached stops the run.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import re
import stat
from pathlib import PurePath
from typing import IO, NamedTuple

from pmtrans.addresses import open_filesystem
from pmtrans.data.gate import UnavailableImage
from pmtrans.errors import DataError, one_line

HEADER = 512  # bytes of a tar header, which lies right before the content
_PACKED = re.compile(r"(?P<shard>.+?\.tar)/@(?P<offset>[0-9]{1,18})\+(?P<length>[0-9]{1,18})/(?P<name>.+)", re.DOTALL)


class PackedImage(NamedTuple):
    """``length`` bytes of ``shard``, from ``offset`` on."""

    shard: str
    offset: int
    length: int
    name: str


def packed_path(shard: str, offset: int, length: int, name: str) -> str:
    """The path of an image inside a shard."""
    return f"{shard}/@{offset}+{length}/{name}"


def packed_image(path: str) -> PackedImage | None:
    """The shard and the place of an image that lies in one; None: an image in a file of its own."""
    if ".tar/@" not in path:
        return None
    found = _PACKED.fullmatch(path)
    if found is None:
        return None
    return PackedImage(found["shard"], int(found["offset"]), int(found["length"]), found["name"])


def name_below(path: str) -> str:
    """What images are sorted by: of one in a shard the name there, else the path."""
    packed = packed_image(path)
    return path if packed is None else packed.name


def class_folder(path: str) -> str:
    """The name of the innermost folder of an image; empty for one that lies in none, right in a shard."""
    return PurePath(name_below(path)).parent.name


def open_image(path: str) -> IO[bytes]:
    """The bytes of an image, to be closed by the caller."""
    packed = packed_image(path)
    if packed is not None:
        return io.BytesIO(_read(packed))
    if not stat.S_ISREG(os.stat(path).st_mode):  # a named pipe would block
        raise DataError("not a regular file")
    return open(path, "rb")


def image_bytes(path: str) -> int | None:
    """The size of an image's file; None where there is no file. Of one in a shard it is known without a look."""
    packed = packed_image(path)
    if packed is not None:
        return packed.length
    try:
        return os.stat(path).st_size
    except OSError:
        return None


def image_state(path: str) -> tuple[int, int, int]:
    """Size and two times, which differ when the image was changed; raises ``OSError`` where there is no file."""
    packed = packed_image(path)
    if packed is None:
        status = os.stat(path)
        return status.st_size, status.st_mtime_ns, status.st_ctime_ns
    if "://" in packed.shard:
        return packed.length, 0, _remote_state(packed.shard)
    status = os.stat(packed.shard)
    return packed.length, status.st_mtime_ns, status.st_ctime_ns


@functools.lru_cache(maxsize=4096)
def _remote_state(shard: str) -> int:
    """A number that changes with a remote shard; asked once in a process."""
    return int.from_bytes(hashlib.blake2b(remote_version(shard).encode(), digest_size=7).digest(), "big")


def remote_version(shard: str) -> str:
    """What the other system says of a file: its size, and its etag or times."""
    filesystem, place = open_filesystem(shard)
    try:
        known = filesystem.info(place)
    except FileNotFoundError:
        raise DataError(f"{one_line(shard)}: there is no such file") from None
    except Exception as error:
        raise DataError(f"{one_line(shard)}: cannot be reached: {_reason(error)}") from None
    marks = (
        "size",
        "etag",
        "ETag",
        "md5Hash",
        "blob_id",
        "last_modified",
        "LastModified",
        "updated",
        "mtime",
        "created",
    )
    return " ".join(f"{mark}={known[mark]}" for mark in marks if known.get(mark) is not None)


def _read(packed: PackedImage) -> bytes:
    """The content, after a look at the header before it: a shard that was replaced holds something else there."""
    begin = packed.offset - HEADER
    try:
        block = _read_range(packed.shard, begin, HEADER + packed.length)
    except DataError as error:
        raise UnavailableImage(packed.shard, str(error)) from None
    except OSError as error:
        reason = "the shard vanished" if isinstance(error, FileNotFoundError) else (error.strerror or "").lower()
        raise UnavailableImage(packed.shard, reason or _reason(error)) from None
    except Exception as error:  # of the packages that fsspec uses
        raise UnavailableImage(packed.shard, _reason(error)) from None
    if len(block) < HEADER + packed.length or not _is_header_of(packed, block[:HEADER]):
        raise UnavailableImage(packed.shard, f"it changed: {one_line(packed.name, 80)} is not where it was")
    return block[HEADER:]


def _read_range(shard: str, begin: int, length: int) -> bytes:
    if "://" in shard:
        filesystem, place = open_filesystem(shard)
        content: bytes = filesystem.cat_file(place, start=begin, end=begin + length)
        return content
    with open(shard, "rb", buffering=0) as file:
        file.seek(begin)
        parts = []
        while length > 0 and (part := file.read(length)):
            parts.append(part)
            length -= len(part)
    return b"".join(parts)


def _is_header_of(packed: PackedImage, header: bytes) -> bool:
    if not has_known_format(header) or header_size(header) != packed.length:
        return False
    name = os.fsencode(packed.name)
    if len(name) > 100 or not name.isascii():  # the whole name is in a block before
        return True
    found = header[:100].split(b"\0", 1)[0]
    prefix = header[345:500].split(b"\0", 1)[0] if header[257:263] == b"ustar\0" else b""
    return (prefix + b"/" + found if prefix else found).removeprefix(b"./") == name


def has_known_format(header: bytes) -> bool:
    """Whether a tar header is of POSIX or GNU, or of the older tar, which wrote no name of a format."""
    return header[257:262] in (b"ustar", bytes(5))


def header_size(header: bytes) -> int:
    """The length of the content, from a tar header; -1 where it has none."""
    field = header[124:136]
    if field[0] in (0x80, 0xFF):  # base 256, of files from 8 GB on
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.strip(b"\0 ") or b"0", 8)
    except ValueError:
        return -1


def _reason(error: BaseException) -> str:
    return one_line(str(error) or type(error).__name__, 150)
