"""Accuracy and F1, overall and per class (VisDA reports the mean over classes)."""

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

    @property
    def counts(self) -> dict[str, int]:
        """Images of each class."""
        return dict(zip(self.per_class, self.confusion_KK.sum(1).tolist(), strict=True))

    @property
    def f1(self) -> dict[str, float | None]:
        """2 TP / (2 TP + FP + FN) of each class; None where it neither occurs nor is predicted."""
        true, predicted = self.confusion_KK.sum(1).tolist(), self.confusion_KK.sum(0).tolist()
        hits = self.confusion_KK.diagonal().tolist()
        totals = [one + other for one, other in zip(true, predicted, strict=True)]  # 2 TP + FP + FN
        values = [2 * hit / total if total else None for hit, total in zip(hits, totals, strict=True)]
        return dict(zip(self.per_class, values, strict=True))

    @property
    def macro_f1(self) -> float:
        """The mean over the classes that occur or are predicted."""
        present = [value for value in self.f1.values() if value is not None]
        return sum(present) / len(present)

    def confusions(self, most: int) -> list[tuple[str, str, int]]:
        """(true class, predicted class, images) of the most frequent errors, in order."""
        names = list(self.per_class)
        wrong = self.confusion_KK - self.confusion_KK.diagonal().diag()
        found = [(names[i], names[j], int(wrong[i, j])) for i, j in wrong.nonzero().tolist()]
        return sorted(found, key=lambda error: (-error[2], error[0], error[1]))[:most]


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
