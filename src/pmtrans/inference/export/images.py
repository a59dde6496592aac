"""Images for the parity check: given ones, else those of the run, else generated ones."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from pmtrans.addresses import is_remote
from pmtrans.data.image import UnreadableImage, load_image
from pmtrans.errors import DataError, UserError
from pmtrans.inference.inputs import gather
from pmtrans.run.folder import RunFolder
from pmtrans.texts import TextError, read_yaml

COUNT = 16
GENERATED = "generated patterns"


def images_for_parity(run: Path, given: str | None) -> tuple[list[Image.Image], str]:
    """Up to 16 readable images, decoded as for prediction, evenly spaced over those found; and where they are from."""
    if given is not None:
        found = _evenly_spaced(gather([given], io.BytesIO()))
        if not found:
            raise DataError(f"{given}: no image there can be read")
        return found, given
    for place in _data_of(run):
        try:
            found = _evenly_spaced(gather([place], io.BytesIO()))
        except UserError:  # the data may have moved since training: export all the same
            continue
        if found:
            return found, place
    return generated_images(), GENERATED


def _evenly_spaced(paths: Sequence[str]) -> list[Image.Image]:
    step = max(1, len(paths) // COUNT)
    found: list[Image.Image] = []
    for index in range(0, len(paths), step):
        try:
            found.append(load_image(paths[index]))
        except UnreadableImage:
            continue
        if len(found) == COUNT:
            break
    return found


def _data_of(run: Path) -> list[str]:
    try:
        data = read_yaml(RunFolder(run).config)["data"]
        places = [place for place in (data["target"], data["source"]) if isinstance(place, str)]
    except (OSError, TextError, KeyError, TypeError):
        return []
    return [place for place in places if not is_remote(place)]  # who gave the run may have chosen them


def generated_images() -> list[Image.Image]:
    """Waves and noise of many sizes and shapes, the same every time."""
    random = np.random.default_rng(0)
    images = []
    for width, height in [(64, 64), (320, 240), (200, 500), (33, 47), (640, 111), (256, 256), (90, 300), (500, 375)]:
        rows, columns = np.mgrid[0:height, 0:width]
        phases, speeds = random.uniform(0, 6, 3), random.uniform(0.01, 0.3, (2, 3))
        waves = np.sin(rows[..., None] * speeds[0] + columns[..., None] * speeds[1] + phases)
        noisy = 127 + 90 * waves + random.normal(0, 20, (height, width, 3))
        images.append(Image.fromarray(noisy.clip(0, 255).astype(np.uint8)))
    return images
