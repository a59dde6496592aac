"""Tiny transformers and generated images, for fixtures and tests alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

TINY: dict[str, tuple[str, dict[str, Any], int]] = {
    "vit": ("vit_tiny_patch16_224", {"depth": 2, "embed_dim": 32, "num_heads": 2}, 32),
    "distilled": ("deit_tiny_distilled_patch16_224", {"depth": 2, "embed_dim": 32, "num_heads": 2}, 32),
    "registers": ("vit_small_patch14_reg4_dinov2", {"depth": 2, "embed_dim": 32, "num_heads": 2}, 28),
    "rotary": ("vit_small_patch16_dinov3", {"depth": 2, "embed_dim": 48, "num_heads": 2}, 32),
    "swin": (
        "swin_tiny_patch4_window7_224", {"embed_dim": 16, "depths": (1, 1), "num_heads": (1, 2), "window_size": 4}, 32,
    ),
}  # fmt: skip


def write_domain(folder: Path, classes: list[str], per_class: int, tint: int, size: int = 36, seed: int = 0) -> Path:
    """Class folders of small pictures: a bright square whose place depends on the class, noise, and a tint."""
    random = np.random.default_rng(seed)
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for index in range(per_class):
            pixels = random.integers(0, 60, (size, size, 3))
            row, column = divmod(number, 2)
            pixels[row * 16 + 2 : row * 16 + 14, column * 16 + 2 : column * 16 + 14] += 150
            pixels[..., 2] += tint
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / name / f"{index:03d}.png")
    return folder
