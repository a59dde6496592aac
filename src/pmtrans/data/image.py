"""Decode any image file to RGB: a ``PIL.Image``, or a ``DataError`` with the reason.

Unusual images:

* transparent images are composited on white (``BACKGROUND``); palettes, grey and CMYK are converted, ICC profiles
  ignored;
* 16-bit grey is scaled to 8 bits by its full range, 32-bit integers and floats by the range of their values;
* EXIF rotation is applied; animations and multi-page files give their first frame;
* truncated files are errors, and so is an image that ``data.gate`` finds too costly.
"""

from __future__ import annotations

import functools
import os
import warnings
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

from pmtrans.data.gate import MAX_PIXELS, UnavailableImage, is_of_the_file, refuse_costly, system_reason
from pmtrans.data.image_parts import refuse_many_parts
from pmtrans.data.packed import open_image
from pmtrans.errors import DataError, one_line

EXTENSIONS = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".tif", ".tiff", ".bmp", ".gif"}
    | {".avif", ".heic", ".heif", ".ppm", ".pgm", ".pbm", ".pnm"}
)
BACKGROUND = (255, 255, 255)

# Decoders that a file may select by its content. Not EPS: it would start Ghostscript.
_FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "TIFF", "BMP", "GIF", "AVIF", "HEIF", "PPM")
_ORIENTATION = 0x0112
_BITS_PER_SAMPLE = 258
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Pillow warns from half of MAX_PIXELS on; the one limit here is an error.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class UnreadableImage(DataError):
    """A file that cannot be decoded: ``reason`` says why, without the path."""

    def __init__(self, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{one_line(path)}: {reason}")


def is_image_name(name: str) -> bool:
    """Whether a file name has the extension of an image."""
    return os.path.splitext(name)[1].lower() in EXTENSIONS


def load_image(path: str, at_least: int | None = None) -> Image.Image:
    """The image at ``path``, upright and in RGB.

    ``at_least`` is the shorter side that a thumbnail needs: a JPEG may then be decoded at 1/2, 1/4 or 1/8 of its
    size, never below ``at_least``, at a fraction of the cost. Not for a model, as the pixels differ. Raises
    ``UnreadableImage`` for what is wrong with the file, ``UnavailableImage`` for what is wrong with the machine; both
    are a ``DataError``.
    """
    try:
        with open_image(path) as file:
            return decode_image(file, at_least)
    except UnavailableImage:  # of a shard
        raise
    except Exception as error:  # decoders raise nearly any exception on a broken file
        raise _as_ours(error, path) from None


def receive_image(file: IO[bytes], name: str, at_least: int | None = None, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """``load_image`` for uploaded bytes; ``name`` is the uploaded file's."""
    try:
        return decode_image(file, at_least, max_pixels)
    except Exception as error:
        raise _as_ours(error, name) from None


def decode_image(file: IO[bytes], at_least: int | None = None, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """``load_image`` for an open file; raises whatever the decoder raises."""
    refuse_many_parts(file)
    image = _open(file)
    refuse_costly(image, max_pixels)
    if at_least is not None:
        image.draft(None, (at_least, at_least))  # only JPEG decoders support it
    image.load()
    return _apply_exif_rotation(_as_rgb(image), image)


def _open(file: IO[bytes]) -> Image.Image:
    try:
        return Image.open(file, formats=_formats())
    except UnidentifiedImageError:
        file.seek(0)
        start = file.read(12)
        if not start:
            raise DataError("empty file") from None
        if start[4:8] != b"ftyp":
            raise
        if start[8:12] in (b"avif", b"avis"):
            if "AVIF" in Image.OPEN:
                raise
            raise DataError("AVIF needs Pillow 11.3 or newer: pip install -U pillow") from None
        if not _register_heif():
            raise DataError("HEIC needs an extra: pip install 'pmtrans[heif]'") from None
        file.seek(0)
        return Image.open(file, formats=_formats())


def _formats() -> list[str]:
    Image.init()
    return [name for name in _FORMATS if name in Image.OPEN]


@functools.cache
def _register_heif() -> bool:
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode == "I" or image.mode == "F" or image.mode.startswith("I;16"):
        image = _to_eight_bits(image)
    if image.has_transparency_data:
        backdrop = Image.new("RGBA", image.size, (*BACKGROUND, 255))
        return Image.alpha_composite(backdrop, image.convert("RGBA")).convert("RGB")
    return image.convert("RGB")


def _to_eight_bits(image: Image.Image) -> Image.Image:
    values = np.nan_to_num(np.asarray(image).astype(np.float32))
    low, high = 0.0, 65535.0
    if image.mode.startswith("I;16"):
        bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (16,))  # a TIFF may hold 12
        high = 2.0 ** (bits[0] if isinstance(bits, tuple) else bits) - 1
    elif image.format != "PNG":  # Pillow before 11 opens a 16-bit PNG as 32-bit integers
        low, high = _range(values, image.mode)
    scaled = (values - low) * (255 / (high - low))
    return Image.fromarray(np.clip(np.rint(scaled), 0, 255).astype(np.uint8))


def _range(values: np.ndarray, mode: str) -> tuple[float, float]:
    """The smallest usual range that contains all values, or else their own range."""
    low, high = float(values.min()), float(values.max())
    if low >= 0:
        for usual in (1.0, 255.0, 65535.0) if mode == "F" else (255.0, 65535.0):
            if high <= usual:
                return 0.0, usual
    return low, high if high > low else low + 1


def _apply_exif_rotation(rgb: Image.Image, opened: Image.Image) -> Image.Image:
    try:
        orientation = opened.getexif().get(_ORIENTATION, 1)
    except Exception:  # broken EXIF costs the rotation, not the image
        return rgb
    transpose = _TRANSPOSE.get(orientation)
    return rgb if transpose is None else rgb.transpose(transpose)


def _as_ours(error: Exception, path: str) -> DataError:
    if is_of_the_file(error):
        return UnreadableImage(path, _reason(error, path))
    return UnavailableImage(path, system_reason(error))


def _reason(error: Exception, path: str) -> str:
    if isinstance(error, FileNotFoundError):
        return "broken link" if os.path.islink(path) else "no such file"
    if isinstance(error, UnidentifiedImageError):
        return "not an image, or an unsupported format"
    if isinstance(error, Image.DecompressionBombError):
        return f"more than {MAX_PIXELS} pixels: scale it down"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return one_line(error) or type(error).__name__
