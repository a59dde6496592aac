"""How well a model does on labelled images: what ``pmtrans evaluate`` measures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pmtrans.data.reading.read import read_target
from pmtrans.errors import DataError, ModelError, one_line
from pmtrans.evaluation.accuracy import Accuracy, measure_accuracy
from pmtrans.evaluation.passes import run_pass
from pmtrans.inference.predictor import Predictor, load, model_folder
from pmtrans.labelling.sampled_accuracy import SampledAccuracy, measure_labelled
from pmtrans.run.model_notes import annotate_model
from pmtrans.selection.unknown_threshold import calibrate_unknown, harmonic_mean


@dataclass(frozen=True)
class OpenAccuracy:
    """Of a model that may answer ``unknown``; images in classes that it does not know should get that answer."""

    known_accuracy: float  # known images whose class is the answer: an image called unknown is wrong
    unknown_recall: float
    harmonic_mean: float
    unknown_images: int


@dataclass(frozen=True)
class Measurement:
    """Accuracy on the images given, and, where they are a sample of a target, the estimate for all of it."""

    accuracy: Accuracy
    estimate: SampledAccuracy
    images: int
    warnings: tuple[str, ...]
    open: OpenAccuracy | None = None  # where the run is open

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
            **(asdict(self.open) if self.open is not None else {}),
        }


def measure(
    run: Path,
    data: str,
    root: str | None = None,
    batch_size: int = 64,
    workers: int = 0,
    device: str | None = None,
    calibrate: bool = False,
) -> Measurement:
    """Predict the labelled images at ``data`` with the model of ``run``, and compare.

    ``calibrate``: first move the threshold of the answer ``unknown`` by these labels, in the model folder too.
    """
    predictor = load(run, device)
    folder = model_folder(run) if calibrate else None
    if calibrate and predictor.trained.unknown is None:
        raise ModelError(
            f"{one_line(run)!r} has no threshold to calibrate: train with data.target_classes=open for one."
        )
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
        _measure_open(predictor, (result.logits_MK.cpu(), labels), target.unknown_paths, batch_size, workers, folder),
    )


def _measure_open(
    predictor: Predictor,
    known: tuple[Tensor, Tensor],
    strange: tuple[str, ...],
    batch_size: int,
    workers: int,
    folder: Path | None,
) -> OpenAccuracy | None:
    """Logits and labels of known images, and a pass over those of classes that the model does not know.

    ``folder``: of the model whose threshold these images calibrate.
    """
    unknown = predictor.trained.unknown
    if unknown is None:
        return None
    logits, labels = known
    if strange:
        passed = run_pass(predictor.model, strange, predictor.trained.preprocessing, batch_size, workers)
        logits = torch.cat([logits, passed.logits_MK.cpu()])
        labels = torch.cat([labels, torch.full((len(strange),), -1)])
    if folder is not None:
        unknown = calibrate_unknown(unknown, logits, labels)
        annotate_model(folder, predictor.trained.balance, unknown)
    measured = harmonic_mean(logits.argmax(1), unknown.scores(logits) > 0.5, labels)
    return OpenAccuracy(*measured, len(strange))
