"""The demo in small: some of the embedded digits, forty steps."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pmtrans.config import Config
from pmtrans.data.demo.digits import write_digits
from pmtrans.demo import demo_config

SHORT: dict[str, Any] = {  # one evaluation: to choose an early one is to avoid the worst of the harm
    "data.holdout": 0.3,
    "train.batch_size": 16,
    "train.max_steps": 40,
    "train.evaluate_every": 40,
    "selection.game": False,
}


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """All of them, source and target."""
    return write_digits(tmp_path_factory.mktemp("digits") / "data")


def some(domain: Path, images: Mapping[str, int], out: Path) -> Path:
    """So many images of each digit."""
    for digit, count in images.items():
        (out / digit).mkdir(parents=True)
        for path in sorted((domain / digit).iterdir())[:count]:
            shutil.copy(path, out / digit)
    return out


def configure(method: str, source: Path, target: Path, **changes: Any) -> Config:
    settings = {**SHORT, **changes}
    return demo_config(source, target, 0, method, [f"{key}={value}" for key, value in settings.items()])
