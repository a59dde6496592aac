"""A run that takes a moment: generated images, a transformer of two thin blocks, a few steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pmtrans.config import Config, load_config
from pmtrans.training.progress import Reporter
from pmtrans.training.train import train

SETTINGS: dict[str, Any] = {
    "data.image_size": 32,
    "data.workers": 0,
    "backbone.name": "vit_tiny_patch16_224",
    "backbone.weights": "none",
    "backbone.options": {"depth": 1, "embed_dim": 24, "num_heads": 2},
    "train.batch_size": 4,
    "train.max_steps": 6,
    "train.evaluate_every": 2,
    "train.log_every": 1,
    "train.epochs": 9,
    "train.baseline": False,
}


def write_images(folder: Path, classes: tuple[str, ...] = ("cat", "dog"), images: int = 5) -> None:
    random = np.random.default_rng(len(folder.name))
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(images):
            pixels = random.integers(0, 256, (36, 36, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    write_images(tmp_path / "images" / "source")
    write_images(tmp_path / "images" / "target")
    return tmp_path / "images"


@pytest.fixture
def configure(images: Path) -> Callable[..., Config]:
    def make(**changes: Any) -> Config:
        domains = {"data.source": str(images / "source"), "data.target": str(images / "target")}
        named = {key.replace("__", "."): value for key, value in changes.items()}
        return load_config(None, [], {**domains, **SETTINGS, **named})

    return make


class Witness(Reporter):
    """The real reporter, and what it said; ``at`` maps steps to something that happens right after them."""

    def __init__(self, at: dict[int, Callable[[], object]] | None = None) -> None:
        super().__init__()
        self.at = at or {}
        self.said: list[str] = []
        self.steps: list[int] = []

    def note(self, text: str) -> None:
        self.said.append(text)
        super().note(text)

    def warn(self, text: str) -> None:
        self.said.append(text)
        super().warn(text)

    def step(self, step: int, rate: float) -> None:
        self.steps.append(step)
        super().step(step, rate)
        self.at.pop(step, lambda: None)()


@pytest.fixture
def undisturbed(configure: Callable[..., Config], tmp_path: Path) -> Path:
    """The run that nothing happened to."""
    train(configure(), tmp_path / "undisturbed", Reporter(quiet=True))
    return tmp_path / "undisturbed"
