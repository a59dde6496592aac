"""Accuracy on target labels, where they exist: logged and printed, never used for training or selection."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from pmtrans.data.reading.read import Target
from pmtrans.evaluation.accuracy import Accuracy, measure_accuracy
from pmtrans.evaluation.passes import Pass


class _Evaluated(Protocol):
    @property
    def step(self) -> int: ...
    @property
    def target(self) -> Pass: ...


class _Notes(Protocol):
    def note(self, text: str) -> None: ...


class Oracle:
    """An observer of the training loop: what it returns is logged, and nothing else uses it."""

    def __init__(self, target: Target, reporter: _Notes, title: str) -> None:
        assert target.labelled is not None
        self.reporter, self.title = reporter, title
        self.classes = target.labelled.classes
        index_of = {path: index for index, path in enumerate(target.domain.paths)}
        self._index = torch.tensor([index_of[path] for path in target.labelled.paths])
        self._labels = torch.tensor(target.labelled.labels)

    def measure(self, logits_MK: Tensor) -> Accuracy:
        """Of the logits of the whole target."""
        return measure_accuracy(logits_MK.argmax(1).cpu()[self._index], self._labels, self.classes)

    def __call__(self, evaluation: _Evaluated) -> dict[str, Any]:
        accuracy = self.measure(evaluation.target.logits_MK)
        self.reporter.note(
            f"{self.title}  step {evaluation.step}: {100 * accuracy.overall:.1f} % of the target right "
            "(oracle, for show only)"
        )
        return {"oracle_accuracy": accuracy.overall, "oracle_per_class_mean": accuracy.per_class_mean}
