"""A run that takes a moment: generated images, a transformer of one thin block, six steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pmtrans.config import Config
from pmtrans.progress import Reporter
from pmtrans.run.metrics import TIMES, read_metrics
from pmtrans.settings import load_config
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
    "train.start": "pretrained",
    "selection.ship": "adapted",
}


def write_images(folder: Path, classes: tuple[str, ...] = ("cat", "dog"), images: int = 5) -> None:
    random = np.random.default_rng(sum(folder.name.encode()))
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(images):
            pixels = random.integers(0, 256, (36, 36, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def write_domains(folder: Path, classes: tuple[str, ...] = ("cat", "dog"), images: int = 5) -> Path:
    """``source`` and ``target`` in ``folder``."""
    for name in ("source", "target"):
        write_images(folder / name, classes, images)
    return folder


class Crash(Exception):
    """A bug somewhere: nobody expects it, so nothing is saved because of it."""


def crash() -> None:
    raise Crash


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


def once_saved(run: Path, name: str, then: Callable[[], object]) -> Callable[[], None]:
    """What happens only after a checkpoint is on the disk: it is written by a thread, in its own time."""

    def wait_and_do() -> None:
        for _ in range(6000):
            if (run / "checkpoints" / name).is_dir():
                then()
                return
            time.sleep(0.01)
        pytest.fail(f"no checkpoint {name} after a minute")

    return wait_and_do


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


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return write_domains(tmp_path / "images")


@pytest.fixture
def configure(images: Path) -> Callable[..., Config]:
    def make(**changes: Any) -> Config:
        domains = {"data.source": str(images / "source"), "data.target": str(images / "target")}
        named = {key.replace("__", "."): value for key, value in changes.items()}
        return load_config(None, [], {**domains, **SETTINGS, **named})

    return make


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing happened to, on images of its own that are the same."""
    folder = write_domains(tmp_path_factory.mktemp("undisturbed"))
    domains = {"data.source": str(folder / "source"), "data.target": str(folder / "target")}
    train(load_config(None, [], {**SETTINGS, **domains}), folder / "run", Reporter(quiet=True))
    return folder / "run"


@pytest.fixture
def cut(configure: Callable[..., Config], tmp_path: Path) -> Path:
    """A run that crashed after step 5 of 6: checkpoints of steps 2 and 4."""
    with pytest.raises(Crash):
        train(configure(), tmp_path / "cut", Witness({5: crash}))
    return tmp_path / "cut"
