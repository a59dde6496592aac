"""A disk cache of decoded and resized images, so that each file is decoded once.

Several processes may read and write it at the same time. An entry is one file: a header that identifies the image file
and its state (size and times), then the pixels. Entries are written atomically, so a killed writer leaves no partial
entry, and carry a checksum, so one damaged by a machine crash is not used. An entry that does not match is a miss.
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

from pmtrans.addresses import absolute
from pmtrans.data.image import load_image
from pmtrans.data.packed import image_state
from pmtrans.data.transforms import Preprocessing, resize
from pmtrans.errors import ConfigError, one_line

_HEADER = struct.Struct("<8s16sqqqII")  # magic, key, file size, mtime, ctime, side, checksum of the pixels
_MAGIC = b"pmtrans1"
_STALE_AFTER = 3600  # seconds: an older temporary file belongs to a killed writer


class ImageCache:
    """A folder of resized images. If writing fails, ``warn`` is called once and training continues."""

    def __init__(self, folder: str | os.PathLike[str], warn: Callable[[str], None]) -> None:
        self.folder = Path(folder).absolute()
        self._temporary = self.folder / "tmp"
        self._warn: Callable[[str], None] | None = warn
        # errno of a failed write, shared by the loader's workers; no lock, as a killed worker might still hold it
        self._write_error = RawValue(ctypes.c_int, 0)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_warn": None}  # workers do not print

    def load(self, path: str, preprocessing: Preprocessing) -> Image.Image:
        """The image at ``path``, in RGB and resized; decoded from the file on a cache miss."""
        try:
            known = image_state(path)  # before decoding: a file that changes meanwhile is a miss next time
        except OSError:
            return load_image(path)  # raises with the reason
        side = preprocessing.resize_to
        key = _key(path, side, preprocessing.interpolation)
        state = (key, *known, side)
        entry = self.folder / key.hex()[:2] / key.hex()[2:]
        pixels = _read(entry, state)
        if pixels is not None:
            return Image.frombytes("RGB", (side, side), pixels)
        image: Image.Image = resize(preprocessing)(load_image(path))
        if not self._write_error.value:
            try:
                self._write(entry, state, image.tobytes())
            except OSError as error:
                self._write_error.value = error.errno or errno.EIO
        return image

    def check(self) -> None:
        """Warn once if writing has failed; called in the main process, between batches."""
        if self._write_error.value and self._warn is not None:
            reason = os.strerror(self._write_error.value)
            self._warn(f"cache {one_line(self.folder)!r} cannot be written ({reason}): training continues without it")
            self._warn = None

    def prepare(self) -> None:
        """Create the folder and remove stale temporary files; a folder without write permission is only a warning."""
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"data.cache {one_line(self.folder)!r} is a file, not a folder: choose another path.")
        try:
            self._temporary.mkdir(parents=True, exist_ok=True)
            descriptor, probe = mkstemp(dir=self._temporary)
            os.close(descriptor)
            os.unlink(probe)
            for file in self._temporary.iterdir():
                with suppress(FileNotFoundError):  # another process may remove it first
                    if file.stat().st_mtime < time.time() - _STALE_AFTER:
                        file.unlink()
        except OSError as error:
            self._write_error.value = error.errno or errno.EIO
        self.check()

    def _write(self, entry: Path, state: tuple[bytes, int, int, int, int], pixels: bytes) -> None:
        """Not flushed to disk: after a power failure the checksum fails and the image is decoded again."""
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
    """The cache in ``folder``, ready to use; None if ``folder`` is None."""
    if folder is None:
        return None
    cache = ImageCache(folder, warn)
    cache.prepare()
    return cache


def read_image(path: str, preprocessing: Preprocessing, cache: ImageCache | None) -> Image.Image:
    """Input for the transforms. They start with the resize, which leaves a cached image unchanged.

    Decoded at full size: a JPEG decoder's own reduction gives other pixels than the resize of timm, of an exported
    graph and of the server, and now and then another class.
    """
    if cache is None:
        return load_image(path)
    return cache.load(path, preprocessing)


def _key(path: str, side: int, interpolation: str) -> bytes:
    """Hash of the path and of all that affects the pixels; Pillow versions may decode differently."""
    settings = f"{side} {interpolation} {PIL.__version__} full".encode()
    return hashlib.blake2b(os.fsencode(absolute(path)) + b"\0" + settings, digest_size=16).digest()


def _read(entry: Path, state: tuple[bytes, int, int, int, int]) -> bytes | None:
    try:
        data = entry.read_bytes()
    except OSError:
        return None
    if len(data) != _HEADER.size + 3 * state[-1] ** 2:
        return None
    magic, *found, checksum = _HEADER.unpack_from(data)
    pixels = data[_HEADER.size :]
    valid = magic == _MAGIC and tuple(found) == state and zlib.crc32(pixels) == checksum
    return pixels if valid else None
