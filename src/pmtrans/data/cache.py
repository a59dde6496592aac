"""Images decoded once: a folder of what they are after the resize that every pass over them begins with.

Several processes may read and write it at the same time. An entry is one file: a header that says of which state of
which image it is, and the pixels. It appears by a rename, so a killed writer leaves no half of one, and it carries a
checksum, so what a crash of the machine left is not believed. What does not fit its header is a miss, never an image.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import struct
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import PIL
from PIL import Image

from pmtrans.data.image import load_image
from pmtrans.data.transforms import Preprocessing, resize
from pmtrans.errors import ConfigError, one_line

_HEADER = struct.Struct("<8s16sqqqII")  # magic, key, size, two times, side, checksum of the pixels
_MAGIC = b"pmtrans1"
_ABANDONED = 3600  # seconds after which a temporary file has no writer any more


class ImageCache:
    """A folder of resized images; when it cannot be written any more, ``warn`` is told once and training goes on."""

    def __init__(self, folder: str | os.PathLike[str], warn: Callable[[str], None]) -> None:
        self.folder = Path(folder).absolute()
        self._temporary = self.folder / "tmp"
        self._warn: Callable[[str], None] | None = warn
        # an error number shared by the loader's processes; without a lock, as a killed process could hold it for ever
        self._fault = RawValue(ctypes.c_int, 0)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_warn": None}  # a loader process does not speak

    def load(self, path: str, preprocessing: Preprocessing) -> Image.Image:
        """The image at ``path`` as RGB and resized; from the file itself where the cache has it not."""
        try:
            status = os.stat(path)  # before decoding: a file that changes meanwhile is a miss next time
        except OSError:
            return load_image(path)  # it says what is wrong with it
        side = preprocessing.resize_to
        key = _key(path, side, preprocessing.interpolation)
        state = (key, status.st_size, status.st_mtime_ns, status.st_ctime_ns, side)
        entry = self.folder / key.hex()[:2] / key.hex()[2:]
        pixels = _read(entry, state)
        if pixels is not None:
            return Image.frombytes("RGB", (side, side), pixels)
        image: Image.Image = resize(preprocessing)(load_image(path, at_least=side))
        if not self._fault.value:
            try:
                self._write(entry, state, image.tobytes())
            except OSError as error:
                self._fault.value = error.errno or errno.EIO
        return image

    def check(self) -> None:
        """Say once that the cache is not being filled any more; called in the main process, between batches."""
        if self._fault.value and self._warn is not None:
            reason = os.strerror(self._fault.value)
            self._warn(f"cache {one_line(self.folder)!r} cannot be written ({reason}): training goes on without")
            self._warn = None

    def prepare(self) -> None:
        """Make the folder and remove what killed writers left; a folder that nobody can write is no error."""
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"data.cache {one_line(self.folder)!r} is a file, not a folder: name another.")
        try:
            self._temporary.mkdir(parents=True, exist_ok=True)
            descriptor, probe = mkstemp(dir=self._temporary)
            os.close(descriptor)
            os.unlink(probe)
            for file in self._temporary.iterdir():
                with suppress(FileNotFoundError):  # another process tidies up too
                    if file.stat().st_mtime < time.time() - _ABANDONED:
                        file.unlink()
        except OSError as error:
            self._fault.value = error.errno or errno.EIO
        self.check()

    def _write(self, entry: Path, state: tuple[bytes, int, int, int, int], pixels: bytes) -> None:
        """Not flushed to the disk: the checksum finds what a power failure takes, and an image can be decoded again."""
        entry.parent.mkdir(exist_ok=True)
        descriptor, temporary = mkstemp(dir=self._temporary)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_HEADER.pack(_MAGIC, *state, zlib.crc32(pixels)) + pixels)
            os.replace(temporary, entry)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise


def open_cache(folder: str | None, warn: Callable[[str], None]) -> ImageCache | None:
    """The cache of ``data.cache``, ready to use; None: no cache."""
    if folder is None:
        return None
    cache = ImageCache(folder, warn)
    cache.prepare()
    return cache


def read_image(path: str, preprocessing: Preprocessing, cache: ImageCache | None) -> Image.Image:
    """An image that the transforms take; the first thing they do is a resize, which leaves a cached one as it is."""
    if cache is None:
        return load_image(path, at_least=preprocessing.resize_to)
    return cache.load(path, preprocessing)


def _key(path: str, side: int, interpolation: str) -> bytes:
    """All that the pixels depend on besides the file; another Pillow may decode otherwise."""
    settings = f"{side} {interpolation} {PIL.__version__}".encode()
    return hashlib.blake2b(os.fsencode(os.path.abspath(path)) + b"\0" + settings, digest_size=16).digest()


def _read(entry: Path, state: tuple[bytes, int, int, int, int]) -> bytes | None:
    try:
        data = entry.read_bytes()
    except OSError:
        return None
    if len(data) != _HEADER.size + 3 * state[-1] ** 2:
        return None
    magic, *found, checksum = _HEADER.unpack_from(data)
    pixels = data[_HEADER.size :]
    fits = magic == _MAGIC and tuple(found) == state and zlib.crc32(pixels) == checksum
    return pixels if fits else None
