"""Accuracy, overall and per class (VisDA reports the mean over classes)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Accuracy:
    """Fractions in [0, 1]; a class without images is None and does not count in the mean."""

    overall: float
    per_class_mean: float
    per_class: dict[str, float | None]
    pairs_M: Tensor  # of each image: true class * K + predicted class

    @cached_property
    def confusion_KK(self) -> Tensor:
        """Rows: true class, columns: predicted. Made when it is asked for: of 30,000 classes it takes 7 GB."""
        count = len(self.per_class)
        return torch.bincount(self.pairs_M, minlength=count * count).view(count, count)


def measure_accuracy(predicted_M: Tensor, labels_M: Tensor, classes: Sequence[str]) -> Accuracy:
    """Compare predicted classes with true ones."""
    count = len(classes)
    labels, predicted = labels_M.long().cpu(), predicted_M.long().cpu()
    total = torch.bincount(labels, minlength=count).double()
    correct = torch.bincount(labels[labels == predicted], minlength=count).double()
    per_class = [(correct[k] / total[k]).item() if total[k] > 0 else None for k in range(count)]
    present = [value for value in per_class if value is not None]
    return Accuracy(
        overall=(correct.sum() / total.sum()).item(),
        per_class_mean=sum(present) / len(present),
        per_class=dict(zip(classes, per_class, strict=True)),
        pairs_M=labels * count + predicted,
    )
