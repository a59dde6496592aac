"""A synthetic Office-Home: four domains of small pictures, three classes, and a transformer of two thin blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

DOMAINS = {"Art": 0, "Clipart": 40, "Product": 80, "Real World": 120}
SETTINGS = [
    "backbone.options={depth: 2, embed_dim: 24, num_heads: 2}",
    "data.image_size=32",
    "data.workers=0",
    "train.batch_size=4",
    "train.max_steps=6",
    "train.evaluate_every=2",
    "train.log_every=1",
    "train.epochs=9",
]
FLAGS = {"backbone.name": "vit_tiny_patch16_224", "backbone.weights": "none"}
COMMAND = ["--backbone", "vit_tiny_patch16_224", "--weights", "none", *SETTINGS]


def write_office_home(folder: Path, per_class: int = 6) -> Path:
    """A bright square whose place is the class, noise, and a tint that is the domain."""
    for number, (domain, tint) in enumerate(DOMAINS.items()):
        random = np.random.default_rng(number)
        for place, name in enumerate(("Alarm_Clock", "Bed", "Candles")):
            (folder / domain / name).mkdir(parents=True)
            for index in range(per_class):
                pixels = random.integers(0, 60, (36, 36, 3))
                row, column = divmod(place, 2)
                pixels[row * 16 + 2 : row * 16 + 14, column * 16 + 2 : column * 16 + 14] += 120
                pixels[..., 2] += tint
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / domain / name / f"{index}.png")
    return folder
