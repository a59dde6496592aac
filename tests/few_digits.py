"""The demo in small: some of the embedded digits, forty steps."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pmtrans.backbones.digits_vit import weights_path
from pmtrans.config import Config, load_config
from pmtrans.data.digits import write_digits
from pmtrans.demo import settings_for

SHORT: dict[str, Any] = {  # one evaluation: to choose an early one is to avoid the worst of the harm
    "seed": 0,
    "backbone.weights": str(weights_path()),
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


def some(domain: Path, images: Mapping[str, int], out: Path) -> str:
    """So many images of each digit."""
    for digit, count in images.items():
        (out / digit).mkdir(parents=True)
        for path in sorted((domain / digit).iterdir())[:count]:
            shutil.copy(path, out / digit)
    return str(out)


def configure(method: str, source: str, target: str, **changes: Any) -> Config:
    domains = {"data.source": source, "data.target": target, "method.name": method}
    return load_config(None, [], {**settings_for(method), **SHORT, **domains, **changes})
