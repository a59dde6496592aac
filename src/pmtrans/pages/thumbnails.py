"""Thumbnails for pages: single ones, and one sprite sheet for those shown on hover."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from pmtrans.data.image import load_image
from pmtrans.errors import DataError

MISSING = (226, 229, 234)  # grey, for a file that cannot be read


def thumbnail(path: str, side: int) -> Image.Image:
    """A square of the image, cropped at its centre."""
    try:
        image = load_image(path, at_least=side)
    except DataError:
        return Image.new("RGB", (side, side), MISSING)
    edge = min(image.size)
    left, top = (image.width - edge) // 2, (image.height - edge) // 2
    return image.resize((side, side), Image.Resampling.LANCZOS, (left, top, left + edge, top + edge))


def data_uri(image: Image.Image, quality: int = 82) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


@dataclass(frozen=True)
class Sheet:
    """Many thumbnails in one image; thumbnail ``i`` is at column ``i % columns``, row ``i // columns``."""

    uri: str
    side: int
    columns: int
    rows: int


def make_sheet(paths: Sequence[str], side: int = 48) -> Sheet:
    """All thumbnails in one image, which loads faster than a thousand."""
    columns = max(1, math.ceil(math.sqrt(len(paths))))
    rows = max(1, math.ceil(len(paths) / columns))
    sheet = Image.new("RGB", (columns * side, rows * side), MISSING)
    for index, path in enumerate(paths):
        sheet.paste(thumbnail(path, side), (index % columns * side, index // columns * side))
    return Sheet(data_uri(sheet, 80), side, columns, rows)
