"""The parity check: whether an exported file and the model agree on the same images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from pmtrans.data.transforms import evaluation_transform
from pmtrans.errors import UserError
from pmtrans.run.model_folder import TrainedModel
from pmtrans.selection.calibration import calibrated_probabilities


class RuntimeOutput(NamedTuple):
    """What an exported file returns for a batch."""

    logits: NDArray[np.float32]
    probabilities: NDArray[np.float32]
    unknown_scores: NDArray[np.float32] | None = None  # where the model knows images of no class


Runtime = Callable[[NDArray[Any]], RuntimeOutput]


class ParityError(UserError):
    """The exported file does not agree with the model; it was deleted."""


@dataclass(frozen=True)
class Parity:
    """How far an exported file and the model agree."""

    images: int
    agreeing: int  # images with the same top class
    largest_difference: float  # of a probability

    def __str__(self) -> str:
        same = f"same top class on {self.agreeing} of {self.images} images"
        return f"{same}, probabilities differ by {self.largest_difference:.1e}"


def measure_parity(
    trained: TrainedModel, runtime: Runtime, images: Sequence[Image.Image], with_preprocessing: bool
) -> Parity:
    """Compare on decoded images, one by one and then as a batch: the batch size must really be dynamic."""
    transform = evaluation_transform(trained.preprocessing)
    inputs = torch.stack([transform(image) for image in images])
    with torch.no_grad():
        logits = trained.model(inputs)
        expected = calibrated_probabilities(logits, trained.temperature).numpy()
        if trained.unknown is not None:  # one more column to compare
            expected = np.concatenate([expected, trained.unknown.scores(logits).numpy()[:, None]], 1)
    if with_preprocessing:
        singles = [np.asarray(image, dtype=np.uint8)[None] for image in images]
        batch, expected_of_batch = np.repeat(singles[0], 3, axis=0), expected[:1]  # images of one batch have one size
    else:
        singles = [image.numpy()[None] for image in inputs]
        batch, expected_of_batch = inputs.numpy(), expected
    found = np.concatenate([_compared(runtime(image)) for image in singles])
    found_in_batch = _compared(runtime(batch))
    largest = max(_largest_difference(found, expected), _largest_difference(found_in_batch, expected_of_batch))
    count = len(trained.classes)
    agreeing = int((found[:, :count].argmax(1) == expected[:, :count].argmax(1)).sum())
    return Parity(len(images), agreeing, largest)


def _compared(output: RuntimeOutput) -> NDArray[np.float32]:
    """Probabilities and, where there are any, scores of unknown images as a last column."""
    if output.unknown_scores is None:
        return output.probabilities
    return np.concatenate([output.probabilities, output.unknown_scores[:, None]], 1)


def _largest_difference(found: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    difference = np.abs(found.astype(np.float64) - expected).max()
    return float(difference) if np.isfinite(difference) else float("inf")


def require_parity(parity: Parity, tolerance: float) -> None:
    """Raise if a probability differs by more; below that, another top class can only be a tie."""
    if not parity.largest_difference <= tolerance:
        raise ParityError(
            f"The export does not agree with the model ({parity}; {tolerance:g} allowed): no file was written."
        )
