"""Whether an exported file says what the model says, on the same images."""

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


class Answer(NamedTuple):
    """What an export returns for a batch."""

    logits: NDArray[np.float32]
    probabilities: NDArray[np.float32]


Runtime = Callable[[NDArray[Any]], Answer]


class ParityError(UserError):
    """The exported file says something else than the model; it was not kept."""


@dataclass(frozen=True)
class Parity:
    """The outcome on some images."""

    images: int
    agreeing: int  # the same top class
    largest: float  # difference of a probability

    def __str__(self) -> str:
        return f"same top class on {self.agreeing} of {self.images} images, probabilities differ by {self.largest:.1e}"


def measure_parity(
    trained: TrainedModel, runtime: Runtime, images: Sequence[Image.Image], with_preprocessing: bool
) -> Parity:
    """Compare on decoded images, each alone and then as batches: the batch must really be open."""
    transform = evaluation_transform(trained.preprocessing)
    inputs = torch.stack([transform(image) for image in images])
    with torch.no_grad():
        expected = calibrated_probabilities(trained.model(inputs), trained.temperature).numpy()
    if with_preprocessing:
        fed = [np.asarray(image, dtype=np.uint8)[None] for image in images]
    else:
        fed = [image.numpy()[None] for image in inputs]
    alone = np.concatenate([runtime(image).probabilities for image in fed])
    differences = [_largest(alone, expected)]
    if with_preprocessing:  # images of several sizes make no batch: the first one three times does
        differences.append(_largest(runtime(np.repeat(fed[0], 3, axis=0)).probabilities, expected[:1]))
    else:
        differences.append(_largest(runtime(inputs.numpy()).probabilities, expected))
    agreeing = int((alone.argmax(1) == expected.argmax(1)).sum())
    return Parity(len(images), agreeing, max(differences))


def _largest(found: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    difference = np.abs(found.astype(np.float64) - expected).max()
    return float(difference) if np.isfinite(difference) else float("inf")


def require_parity(parity: Parity, tolerance: float) -> None:
    """Raise if any probability is off by more; below that, another top class can only be a tie."""
    if not parity.largest <= tolerance:
        raise ParityError(f"The export does not agree with the model ({parity}; {tolerance:g} allowed): nothing kept.")
