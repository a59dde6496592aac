"""Printed characters on the counting grid of the UCI handwritten digits: an 8x8 image of values 0 to 16.

The UCI digits were made from 32x32 bitmaps, size-normalised to the full height, by counting the ink pixels
in each block of 4x4. A glyph is processed the same way: its outline (as a distance field) is warped, fitted to
the 32x32 bitmap, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import distance_transform_edt, map_coordinates

FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    *("cmr10", "cmb10", "cmss10", "cmti10", "cmtt10"),
)
"""Text fonts that matplotlib ships (its mathematical fonts lack ordinary digits and letters)."""

BITMAP = 32
BLOCK = 4
GRID = BITMAP // BLOCK
COUNT = BLOCK * BLOCK
"""The largest value of a grid cell: every pixel of its block is ink."""

_WIDEST = 24  # of 32 columns: the handwritten digits leave the outer columns free
_EM = 96  # pixels per em when a glyph is drawn; only the distance field is kept
_MARGIN = 24  # pixels of background around it, so that strokes may thicken

Points = NDArray[np.float64]  # (2, ...): vertical and horizontal position, in em from the glyph's centre


@dataclass(frozen=True)
class Variation:
    """Ranges of the random distortions of a glyph; each draw is uniform in ± the value."""

    rotation: float = 0.0  # degrees
    shear: float = 0.0
    stretch: float = 0.0  # log of width over height
    perspective: float = 0.0
    wave: float = 0.0  # bending of the strokes, in em
    thinner: float = 0.0  # largest decrease of half the stroke width, in em
    thicker: float = 0.0  # largest increase
    shrink: float = 0.0  # largest reduction of the height, as a share
    shift: float = 0.0  # bitmap pixels
    noise: float = 0.0  # largest share of bitmap pixels flipped


def font_path(name: str) -> Path:
    """The file of one of ``FONTS`` inside the installed matplotlib."""
    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{name}.ttf"


@lru_cache(maxsize=2048)
def _distance_field(character: str, font: str) -> NDArray[np.float64]:
    """Distance to the outline in em, positive inside the ink, on a canvas centred on the glyph."""
    typeface = ImageFont.truetype(str(font_path(font)), _EM)
    left, top, right, bottom = typeface.getbbox(character)
    canvas = Image.new("L", (int(right - left) + 2 * _MARGIN, int(bottom - top) + 2 * _MARGIN))
    ImageDraw.Draw(canvas).text((_MARGIN - left, _MARGIN - top), character, fill=255, font=typeface)
    ink = np.asarray(canvas) >= 128
    if not ink.any():
        raise ValueError(f"font {font} has no glyph for {character!r}")
    inside = distance_transform_edt(ink) - distance_transform_edt(~ink)
    return np.asarray(inside / _EM, dtype=np.float64)


def _draw_warp(variation: Variation, random: np.random.Generator) -> Callable[[Points], Points]:
    """A random smooth map from output positions to positions in the glyph."""
    angle = np.deg2rad(variation.rotation * random.uniform(-1, 1))
    shear = variation.shear * random.uniform(-1, 1)
    stretch = np.exp(0.5 * variation.stretch * random.uniform(-1, 1))
    rotate = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    linear = np.diag([stretch, 1 / stretch]) @ np.array([[1.0, 0.0], [shear, 1.0]]) @ rotate
    tilt = variation.perspective * random.uniform(-1, 1, size=2)
    frequency = random.uniform(-7, 7, size=(3, 2))  # radians per em: about one bend per stroke
    phase = random.uniform(0, 2 * np.pi, size=(3, 1))
    amplitude = variation.wave * random.uniform(-1, 1, size=(2, 3))

    def warp(points: Points) -> Points:
        flat = points.reshape(2, -1)
        flat = flat / np.maximum(1 + tilt @ flat, 0.3)
        flat = linear @ flat
        flat = flat + amplitude @ np.sin(frequency @ flat + phase)
        return np.asarray(flat.reshape(points.shape), dtype=np.float64)

    return warp


def _grid_points(vertical: NDArray[np.float64], horizontal: NDArray[np.float64]) -> Points:
    return np.stack(np.meshgrid(vertical, horizontal, indexing="ij"))


def _ink_box(ink: NDArray[np.bool_], axis: NDArray[np.float64]) -> tuple[Points, Points]:
    """Centre and extent (height, width) of the ink, in em."""
    rows, columns = np.nonzero(ink)
    step = axis[1] - axis[0]
    low = np.array([axis[rows.min()], axis[columns.min()]]) - step / 2
    high = np.array([axis[rows.max()], axis[columns.max()]]) + step / 2
    return (low + high) / 2, high - low


def render_glyph(character: str, font: str, variation: Variation, random: np.random.Generator) -> NDArray[np.uint8]:
    """One character as an 8x8 grid of counts 0 to 16, the same for the same state of ``random``."""
    field = _distance_field(character, font)
    warp = _draw_warp(variation, random)
    weight = random.uniform(-variation.thinner, variation.thicker)
    height = BITMAP * (1 - variation.shrink * random.uniform())
    offset = variation.shift * random.uniform(-1, 1, size=2)
    noise = variation.noise * random.uniform()

    def ink(points: Points) -> NDArray[np.bool_]:
        middle = (np.array(field.shape) - 1).reshape(2, 1, 1) / 2
        distance = map_coordinates(field, warp(points) * _EM + middle, order=1, mode="nearest")
        return np.asarray(distance > -weight, dtype=np.bool_)

    axis = np.linspace(-0.9, 0.9, 97)
    centre, extent = _ink_box(ink(_grid_points(axis, axis)), axis)
    pixels = np.arange(BITMAP) + 0.5 - BITMAP / 2
    width = min(extent[1] / extent[0] * height, _WIDEST)  # aspect kept, unless the glyph is too wide
    bitmap = ink(
        _grid_points(
            centre[0] + (pixels - offset[0]) * extent[0] / height,
            centre[1] + (pixels - offset[1]) * extent[1] / width,
        )
    )
    bitmap = bitmap ^ (random.random(bitmap.shape) < noise)
    counts = bitmap.reshape(GRID, BLOCK, GRID, BLOCK).sum(axis=(1, 3))
    return np.asarray(counts, dtype=np.uint8)


LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ" + "abdefghijmnqrty"
"""Classes of the pretraining: no digits, no letters that look like one in some font (O, o, I, l), and no lower-case
letters that look like their capital once the height is normalised."""

LETTER_VARIATION = Variation(
    rotation=20,
    shear=0.35,
    stretch=0.5,
    perspective=0.35,
    wave=0.05,
    thinner=0.01,
    thicker=0.06,
    shrink=0.15,
    shift=2,
    noise=0.02,
)
"""Strong, so that the pretraining learns strokes in general, not these fonts."""


def render_letters(
    count: int, seed: int, fonts: Sequence[str] = FONTS, variation: Variation = LETTER_VARIATION
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """``count`` random letters: grids (count, 8, 8) of values 0 to 16, and indices into ``LETTERS``."""
    random = np.random.default_rng(seed)
    labels = random.integers(len(LETTERS), size=count)
    chosen = random.integers(len(fonts), size=count)
    grids = [
        render_glyph(LETTERS[label], fonts[font], variation, random) for label, font in zip(labels, chosen, strict=True)
    ]
    return np.stack(grids), labels.astype(np.int64)
