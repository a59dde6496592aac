"""The gate for images: what one may cost, asked before it is decoded, and whose fault it is that one cannot be read.

Only what is wrong with a file itself makes an image bad. A machine that has run out of descriptors or memory, a
permission, a disk that does not answer say nothing of the image: they stop the run, and no image is left out.
"""

from __future__ import annotations

import errno

from PIL import Image

from pmtrans.errors import DataError, is_out_of_memory, one_line

MAX_PIXELS = 178_956_970  # Pillow's own limit for an error: 512 MB as RGB
MAX_SIDE = 65_535  # that of JPEG
MAX_ASPECT = 250  # longer side / shorter side, of an image of more than LONG pixels
LONG = 1_000_000
DEEP_COST = 4  # 16 and 32 bits a pixel are scaled as floats: so many times the memory of 8 bits

_OF_THE_FILE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL}


class UnavailableImage(DataError):
    """An image that could not be read for a reason that is not its own."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{one_line(path)} cannot be read now: {reason}. No image was left out because of it.")


def refuse_costly(image: Image.Image, max_pixels: int = MAX_PIXELS) -> None:
    """Refuse an opened image by its header, before a pixel is decoded."""
    width, height = image.size
    shown = f"{width}x{height}"
    if width < 1 or height < 1:
        raise DataError(f"{shown} has no pixels")
    if max(width, height) > MAX_SIDE:
        raise DataError(f"{shown} has a side of more than {MAX_SIDE} pixels: scale it down")
    if width * height > LONG and max(width, height) > MAX_ASPECT * min(width, height):
        raise DataError(f"{shown} is more than {MAX_ASPECT} times as long as wide: cut it")
    is_deep = image.mode in ("I", "F") or image.mode.startswith("I;")
    allowed = max_pixels // DEEP_COST if is_deep else max_pixels
    if width * height > allowed:
        depth = " at this depth" if is_deep else ""
        raise DataError(f"{shown} is more than {allowed} pixels{depth}: scale it down")


def is_of_the_file(error: Exception) -> bool:
    """Whether an error while reading an image says something about the image; decoders raise nearly anything."""
    if is_out_of_memory(error):
        return False
    return not (isinstance(error, OSError) and error.errno is not None and error.errno not in _OF_THE_FILE)


def system_reason(error: Exception) -> str:
    """Why the system could not read, in one phrase."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return "memory ran out" if is_out_of_memory(error) else one_line(error)
