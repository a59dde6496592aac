from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_run import SETTINGS, write_images

from pmtrans.config import Config, load_config
from pmtrans.training.progress import Reporter
from pmtrans.training.train import train


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


@pytest.fixture
def undisturbed(configure: Callable[..., Config], tmp_path: Path) -> Path:
    """The run that nothing happened to."""
    train(configure(), tmp_path / "undisturbed", Reporter(quiet=True))
    return tmp_path / "undisturbed"
