"""One pass over images under the evaluation transform: features and logits of each, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from pmtrans.data.cache import ImageCache
from pmtrans.data.loader import image_batches, unreadable
from pmtrans.data.transforms import Preprocessing
from pmtrans.errors import TrainingError
from pmtrans.model import Model


@dataclass(frozen=True)
class Pass:
    """Features and logits of M images, float32, on the model's device."""

    features_MF: Tensor
    logits_MK: Tensor


@torch.no_grad()
def run_pass(
    model: Model,
    paths: Sequence[str],
    preprocessing: Preprocessing,
    batch_size: int,
    workers: int,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    cache: ImageCache | None = None,
) -> Pass:
    """Features and logits of ``paths``; the model's training mode is put back afterwards."""
    device = next(model.parameters()).device
    features_MF = torch.empty(len(paths), model.backbone.features, device=device)
    logits_MK = torch.empty(len(paths), model.classes, device=device)
    was_training = model.training
    model.eval()
    done = 0
    for images, reasons in image_batches(paths, preprocessing, batch_size, workers, cache):
        bad = next((reason for reason in reasons if reason is not None), None)
        if bad is not None:
            raise TrainingError(unreadable(bad))
        with autocast():
            features, logits = model.features_and_logits(images.to(device, non_blocking=True))
        features_MF[done : done + len(images)] = features
        logits_MK[done : done + len(images)] = logits
        done += len(images)
    model.train(was_training)
    return Pass(features_MF, logits_MK)
