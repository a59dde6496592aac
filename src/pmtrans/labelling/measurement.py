"""How well a model does on labelled images: what ``pmtrans evaluate`` measures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from pmtrans.data.reading.read import read_target
from pmtrans.errors import DataError, one_line
from pmtrans.evaluation.accuracy import Accuracy, measure_accuracy
from pmtrans.evaluation.passes import run_pass
from pmtrans.inference.predictor import load
from pmtrans.labelling.sampled_accuracy import SampledAccuracy, measure_labelled


@dataclass(frozen=True)
class Measurement:
    """Accuracy on the images given, and, where they are a sample of a target, the estimate for all of it."""

    accuracy: Accuracy
    estimate: SampledAccuracy
    images: int
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        accuracy = self.accuracy
        return {
            "accuracy": accuracy.overall,
            "estimate": asdict(self.estimate),
            "per_class_mean": accuracy.per_class_mean,
            "macro_f1": accuracy.macro_f1,
            "per_class": accuracy.per_class,
            "f1": accuracy.f1,
            "counts": accuracy.counts,
            "classes": list(accuracy.per_class),
            "confusion": accuracy.confusion_KK.tolist(),  # rows: true class, columns: predicted
            "images": self.images,
            "warnings": list(self.warnings),
        }


def measure(
    run: Path, data: str, root: str | None = None, batch_size: int = 64, workers: int = 0, device: str | None = None
) -> Measurement:
    """Predict the labelled images at ``data`` with the model of ``run``, and compare."""
    predictor = load(run, device)
    target = read_target(data, predictor.classes, root=root, trained_on=False)
    if target.labelled is None:
        raise DataError(f"{one_line(data)}: no labels found, so there is nothing to measure against.")
    paths, labels = target.labelled.paths, torch.tensor(target.labelled.labels)
    result = run_pass(predictor.model, paths, predictor.trained.preprocessing, batch_size, workers)
    predicted = result.logits_MK.argmax(1).cpu()
    correct = dict(zip(paths, (predicted == labels).tolist(), strict=True))
    return Measurement(
        measure_accuracy(predicted, labels, predictor.classes),
        measure_labelled(correct, Path(data), root),
        len(paths),
        target.warnings,
    )
