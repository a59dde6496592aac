"""Measurements of single images (size, colour, sharpness, hashes) and their statistics over a domain."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageStat

from pmtrans.data.image import load_image
from pmtrans.errors import one_line

THUMBNAIL = 16  # side of the colour thumbnail
SMALL_SIDE = 32  # pixels: a shorter side below this gives a warning
LONG_ASPECT = 4.0  # an aspect ratio above this gives a warning
_VIEW = 256  # shorter side at which sharpness is measured: about the input size of a network
_HASH, _GRID = 8, 32  # perceptual hash: frequencies kept and side of the grey image, per axis


@dataclass(frozen=True)
class Facts:
    """Measurements of one image.

    ``pixel_digest`` is a digest of the decoded image, independent of the file format; ``perceptual_hash`` has 64 bits,
    few of which differ between images that look alike.
    """

    width: int
    height: int
    pixel_digest: bytes
    perceptual_hash: int
    thumbnail: NDArray[np.uint8]  # THUMBNAIL x THUMBNAIL x 3
    colour: tuple[float, float, float]
    contrast: float
    sharpness: float


@dataclass(frozen=True)
class Spread:
    """Minimum, median and maximum of a measurement."""

    min: float
    median: float
    max: float


@dataclass(frozen=True)
class Statistics:
    """Measurements over the readable images of a domain. Colours are 0 to 255."""

    width: Spread
    height: Spread
    aspect_ratio: Spread  # width / height
    colour: tuple[float, float, float]  # mean red, green, blue
    contrast: Spread  # standard deviation of the grey levels
    sharpness: Spread  # variance of the Laplacian, at a shorter side of at most 256


def image_facts(path: str) -> Facts:
    """Decode the image at ``path`` in full and measure it; raises ``UnreadableImage``."""
    image = load_image(path)
    view = _view(image)
    grey = view.convert("L")
    digest = hashlib.blake2b(image.tobytes(), digest_size=16, salt=repr(image.size).encode()[:16])
    red, green, blue = ImageStat.Stat(view).mean
    return Facts(
        width=image.width,
        height=image.height,
        pixel_digest=digest.digest(),
        perceptual_hash=perceptual_hash(grey),
        thumbnail=np.asarray(view.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)),
        colour=(red, green, blue),
        contrast=ImageStat.Stat(grey).stddev[0],
        sharpness=_sharpness(np.asarray(grey, dtype=np.int16)),
    )


def perceptual_hash(image: Image.Image) -> int:
    """pHash: whether each of the 8x8 lowest DCT frequencies of the grey image is above their median."""
    small = image.convert("L").resize((_GRID, _GRID), Image.Resampling.BOX)
    frequencies = (_COSINES @ np.asarray(small, dtype=np.float32) @ _COSINES.T).ravel()
    bits = frequencies > np.median(frequencies[1:])  # without the first, which is the mean brightness
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def summarise(facts: Sequence[Facts]) -> Statistics | None:
    """The statistics of a domain, or None if no image could be decoded."""
    if not facts:
        return None
    red, green, blue = np.mean([fact.colour for fact in facts], axis=0).tolist()
    return Statistics(
        width=_spread(facts, lambda fact: fact.width),
        height=_spread(facts, lambda fact: fact.height),
        aspect_ratio=_spread(facts, lambda fact: fact.width / fact.height),
        colour=(red, green, blue),
        contrast=_spread(facts, lambda fact: fact.contrast),
        sharpness=_spread(facts, lambda fact: fact.sharpness),
    )


def shape_warnings(name: str, paths: Sequence[str], facts: Sequence[Facts]) -> tuple[str, ...]:
    """Warnings about tiny or very elongated images, of which a square crop shows little."""
    warnings = []
    tiny = [path for path, fact in zip(paths, facts, strict=True) if _shorter(fact) < SMALL_SIDE]
    if tiny:
        warnings.append(
            f"{name}: {len(tiny)} images have a side under {SMALL_SIDE} pixels, such as {one_line(tiny[0])}"
        )
    long = [path for path, fact in zip(paths, facts, strict=True) if _aspect(fact) > LONG_ASPECT]
    if long:
        warnings.append(
            f"{name}: {len(long)} images are over {LONG_ASPECT:.0f} times as long as wide, such as {one_line(long[0])}"
        )
    return tuple(warnings)


def _cosines() -> NDArray[np.float32]:
    frequency, position = np.arange(_HASH)[:, None], np.arange(_GRID)[None, :]
    return np.cos(np.pi * frequency * (2 * position + 1) / (2 * _GRID)).astype(np.float32)


_COSINES = _cosines()


def _view(image: Image.Image) -> Image.Image:
    scale = _VIEW / min(image.size)
    if scale >= 1:
        return image
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)


def _sharpness(grey: NDArray[np.int16]) -> float:
    """The variance of the Laplacian: low for a blurred image."""
    if min(grey.shape) < 3:
        return 0.0
    centre = grey[1:-1, 1:-1]
    around = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:]
    laplacian = (around - 4 * centre).astype(np.float32).ravel()
    return float(np.dot(laplacian, laplacian) / len(laplacian) - laplacian.mean() ** 2)


def _spread(facts: Sequence[Facts], measure: Callable[[Facts], float]) -> Spread:
    values = np.array([measure(fact) for fact in facts], dtype=np.float64)
    return Spread(float(values.min()), float(np.median(values)), float(values.max()))


def _aspect(fact: Facts) -> float:
    return max(fact.width, fact.height) / _shorter(fact)


def _shorter(fact: Facts) -> int:
    return min(fact.width, fact.height)
