"""A run that takes a moment: generated images, a transformer of one thin block, six steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pmtrans.run.metrics import TIMES, read_metrics
from pmtrans.training.progress import Reporter

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


def assert_same_run(one: Path, other: Path) -> None:
    """Weights byte by byte, metrics line by line but for times."""
    name = Path("model") / "model.safetensors"
    assert (one / name).read_bytes() == (other / name).read_bytes()
    first, second = (
        [
            {key: value for key, value in line.items() if key not in TIMES}
            for line in read_metrics(run / "metrics.jsonl")
        ]
        for run in (one, other)
    )
    assert first == second
    assert len(first) > 3
