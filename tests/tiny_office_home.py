"""A synthetic Office-Home: four domains of small pictures, three classes, and a transformer of two thin blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

DOMAINS = {"Art": 0, "Clipart": 25, "Product": 50, "Real World": 75}
CLASSES = ("Alarm_Clock", "Bed", "Candles")
FLAGS = {"backbone.name": "vit_tiny_patch16_224", "backbone.weights": "none"}
SETTINGS = (
    "backbone.options={depth: 2, embed_dim: 24, num_heads: 2}",
    "data.image_size=32",
    "data.workers=0",
    "train.batch_size=6",
    "train.max_steps=12",
    "train.evaluate_every=4",
    "train.log_every=1",
    "train.epochs=99",
    "train.learning_rate=3e-3",
    "train.head_ratio=1",
)
COMMAND = ("--backbone", "vit_tiny_patch16_224", "--weights", "none", *SETTINGS)


def write_office_home(folder: Path, per_class: int = 6) -> Path:
    """The class is a colour, strong or faint; the domain is how bright the pictures are. A few steps learn a part."""
    for number, (domain, brightness) in enumerate(DOMAINS.items()):
        random = np.random.default_rng(number)
        for colour, name in enumerate(CLASSES):
            (folder / domain / name).mkdir(parents=True)
            for index in range(per_class):
                pixels = random.integers(0, 90, (36, 36, 3)) + brightness
                pixels[..., colour] += 15 * index
                Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / domain / name / f"{index}.png")
    return folder
