"""Old places: images of where a model worked before it moved. At each evaluation it is seen what was forgotten there.

Class folders give accuracy; images without labels give agreement with the given model. Nothing is trained on them, and
nothing is chosen by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch

from pmtrans.data.reading.read import read_target
from pmtrans.errors import UserError, one_line
from pmtrans.evaluation.passes import run_pass
from pmtrans.model import Model
from pmtrans.progress import Reporter
from pmtrans.run.model_folder import TrainedModel
from pmtrans.training.build import Task

MOST = 1000  # images of a place, evenly drawn: a pass over them is made at every evaluation
PREFIX = "old."


@dataclass(frozen=True)
class OldPlace:
    """``labels``: its own, or those of the given model; ``given``: what the given model has of them."""

    name: str
    paths: tuple[str, ...]
    labels: tuple[int, ...]
    measure: Literal["accuracy", "agreement"]
    given: float


@dataclass
class OldPlaces:
    """An observer of the loop, for the main process."""

    places: tuple[OldPlace, ...]
    model: Model
    task: Task
    workers: int | None
    reporter: Reporter
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext

    def __call__(self, evaluation: Any) -> dict[str, float]:
        values = {}
        for place in self.places:
            predicted = _predicted(self.model, place.paths, self.task.preprocessing, self.workers, self.autocast)
            values[place.name] = _share(predicted, place.labels)
            self.reporter.note(
                f"old place {one_line(place.name)}  step {evaluation.step}: {place.measure} "
                f"{values[place.name]:.1%}, the given model {place.given:.1%}"
            )
        return {PREFIX + name: value for name, value in values.items()}


def read_old_places(
    given: Sequence[str], trained: TrainedModel, device: torch.device, workers: int | None
) -> tuple[OldPlace, ...]:
    """Each with what the given model has there; a folder that cannot be read is an error before the first step."""
    model, places = trained.model.to(device), list[OldPlace]()
    for spec in given:
        try:
            target = read_target(spec, trained.classes, trained_on=False)
        except UserError as error:
            raise type(error)(f"--old {error}") from None
        labelled = target.labelled
        paths = target.domain.paths if labelled is None else labelled.paths
        chosen = torch.linspace(0, len(paths) - 1, min(len(paths), MOST), dtype=torch.float64).round().long().tolist()
        sample = tuple(paths[place] for place in chosen)
        predicted = _predicted(model, sample, trained.preprocessing, workers)
        labels = predicted if labelled is None else [labelled.labels[place] for place in chosen]
        name = _unused(target.domain.origin.resolve().name, [place.name for place in places])
        measure: Literal["accuracy", "agreement"] = "agreement" if labelled is None else "accuracy"
        places.append(OldPlace(name, sample, tuple(labels), measure, _share(predicted, labels)))
    return tuple(places)


def _predicted(
    model: Model,
    paths: Sequence[str],
    preprocessing: Any,
    workers: int | None,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[int]:
    labels: list[int] = run_pass(model, paths, preprocessing, 64, workers, autocast).logits_MK.argmax(1).tolist()
    return labels


def _share(predicted: Sequence[int], labels: Sequence[int]) -> float:
    return sum(one == other for one, other in zip(predicted, labels, strict=True)) / len(labels)


def _unused(name: str, taken: Sequence[str]) -> str:
    """Two places may have folders of one name."""
    number = 2
    unused = name
    while unused in taken:
        unused, number = f"{name}-{number}", number + 1
    return unused
