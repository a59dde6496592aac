"""Accuracy on the target labels that were kept for measuring: no training and no selection has seen them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.evaluation.interval import wilson_interval

NAME = "kept_labels_accuracy"  # in evaluations
LEVEL = 0.95


class KeptLabels:
    """``kept`` are images of ``target``."""

    def __init__(self, kept: LabelledDomain, target: Domain) -> None:
        place = {path: index for index, path in enumerate(target.paths)}
        self._index = torch.tensor([place[path] for path in kept.paths], dtype=torch.long)
        self._labels = torch.tensor(kept.labels, dtype=torch.long)

    def predicted(self, logits_MK: Tensor) -> list[int]:
        """Classes of the kept images, from the logits of the whole target."""
        found: list[int] = logits_MK.cpu()[self._index].argmax(1).tolist()
        return found

    def accuracy(self, logits_MK: Tensor) -> dict[str, Any]:
        """For an evaluation; nothing where no label was kept."""
        if not len(self._labels):
            return {}
        return {NAME: share_right(self.predicted(logits_MK), self._labels.tolist())}


def share_right(predicted: Sequence[int], labels: Sequence[int]) -> float:
    return sum(one == other for one, other in zip(predicted, labels, strict=True)) / len(labels)


def with_interval(accuracy: float | None, images: int) -> dict[str, float] | None:
    """The accuracy on so many images, and Wilson's interval."""
    if accuracy is None or not images:
        return None
    low, high = wilson_interval(accuracy, images, LEVEL)
    return {"accuracy": accuracy, "low": low, "high": high}
