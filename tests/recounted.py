"""Accuracy counted again from outside: the model folder on disk, one prediction an image, folder names as truth."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pmtrans


def recount(model: Path, target: Path) -> tuple[float, float]:
    """(accuracy, mean accuracy of the classes) of a model folder on class folders."""
    images = sorted(target.glob("*/*.png"))
    right: dict[str, list[bool]] = defaultdict(list)
    for image, prediction in zip(images, pmtrans.load(model).predict(images), strict=True):
        right[image.parent.name].append(prediction.label == image.parent.name)
    of_class = [sum(found) / len(found) for found in right.values()]
    return sum(map(sum, right.values())) / len(images), sum(of_class) / len(of_class)


def adapted_model(run: Path) -> Path:
    """Where the adapted model of a run is, shipped or not."""
    return run / "adapted" if (run / "adapted").is_dir() else run / "model"
