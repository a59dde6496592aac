"""Figures made of images: the mixed ones, and what the model looks at."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

Pixels = NDArray[np.floating]


def draw_mixed(
    figure: Figure,
    source: Pixels,
    target: Pixels,
    ratio: Pixels,
    grid: tuple[int, int],
) -> None:
    """Pairs of images (B, H, W, 3 in [0, 1]), the map of ratios, and the mixed image, one row a pair."""
    rows = len(source)
    axes = figure.subplots(rows, 4, squeeze=False)
    side = source.shape[1]
    for row in range(rows):
        cells = ratio[row].reshape(grid)
        weight = np.kron(cells, np.ones((math.ceil(side / grid[0]), math.ceil(side / grid[1]))))[:side, :side, None]
        mixed = weight * source[row] + (1 - weight) * target[row]
        for column, (picture, title) in enumerate(
            ((source[row], "source"), (target[row], "target"), (cells, r"$\lambda$ per patch"), (mixed, "intermediate"))
        ):
            cell = axes[row][column]
            cell.imshow(picture, vmin=0, vmax=1, cmap="viridis")
            cell.set_axis_off()
            if row == 0:
                cell.set_title(title, fontsize=9)


def draw_attention(
    figure: Figure,
    images: Pixels,
    maps: dict[str, Pixels],
    captions: Mapping[str, Sequence[str]],
    grid: tuple[int, int],
) -> None:
    """Images (B, H, W, 3 in [0, 1]) and, a column each, the maps (B, N) laid over them; captions below each."""
    columns = ["image", *maps]
    axes = figure.subplots(len(images), len(columns), squeeze=False)
    side = images.shape[1]
    for row, image in enumerate(images):
        for cell, name in zip(axes[row], columns, strict=True):
            cell.imshow(
                image if name == "image" else image.mean(2), cmap="gray", vmin=0, vmax=1, extent=(0, side, side, 0)
            )
            if name in maps:
                scores = maps[name][row].reshape(grid)
                cell.imshow(
                    scores / scores.max(), cmap="inferno", alpha=0.6, vmin=0, vmax=1, extent=(0, side, side, 0),
                    interpolation="bilinear",
                )  # fmt: skip
            cell.set(xticks=[], yticks=[], xlim=(0, side), ylim=(side, 0))
            cell.spines[:].set_visible(False)
            cell.set_xlabel(captions[name][row], fontsize=7, labelpad=2)
            if row == 0:
                cell.set_title(name, fontsize=9)
