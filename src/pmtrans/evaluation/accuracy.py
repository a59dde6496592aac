"""Accuracy, overall and per class (VisDA reports the mean over classes)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Accuracy:
    """Fractions in [0, 1]; a class without images is None and does not count in the mean."""

    overall: float
    per_class_mean: float
    per_class: dict[str, float | None]
    confusion_KK: Tensor  # rows: true class, columns: predicted


def measure_accuracy(predicted_M: Tensor, labels_M: Tensor, classes: Sequence[str]) -> Accuracy:
    """Compare predicted classes with true ones."""
    count = len(classes)
    flat = labels_M.long().cpu() * count + predicted_M.long().cpu()
    confusion_KK = torch.bincount(flat, minlength=count * count).view(count, count)
    correct, total = confusion_KK.diagonal().double(), confusion_KK.sum(1).double()
    per_class = [(correct[k] / total[k]).item() if total[k] > 0 else None for k in range(count)]
    present = [value for value in per_class if value is not None]
    return Accuracy(
        overall=(correct.sum() / total.sum()).item(),
        per_class_mean=sum(present) / len(present),
        per_class=dict(zip(classes, per_class, strict=True)),
        confusion_KK=confusion_KK,
    )
