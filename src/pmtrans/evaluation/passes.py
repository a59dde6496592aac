"""Inference over a list of images with the evaluation transform: features and logits, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import timm.data
import torch
from numpy.typing import NDArray
from torch import Tensor

from pmtrans.backbones.create import create_backbone
from pmtrans.data.cache import ImageCache
from pmtrans.data.loader import image_batches, unreadable_message
from pmtrans.data.transforms import Preprocessing, preprocessing_for
from pmtrans.errors import TrainingError
from pmtrans.large_rows import empty_rows
from pmtrans.machine import choose_device, copy_to
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
    workers: int | None,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    cache: ImageCache | None = None,
    folder: Path | None = None,
) -> Pass:
    """Features and logits of ``paths``; the model's training mode is restored afterwards.

    ``folder``: where they lie on disk if they are large (``large_rows``).
    """
    device = next(model.parameters()).device
    features_MF = empty_rows(len(paths), model.backbone.features, device, folder)
    logits_MK = empty_rows(len(paths), model.classes, device, folder)
    was_training = model.training
    model.eval()
    done = 0
    batch_size = max(1, min(batch_size, len(paths)))
    for images, errors in image_batches(paths, preprocessing, batch_size, workers, cache, device):
        first_error = next((error for error in errors if error is not None), None)
        if first_error is not None:
            raise TrainingError(unreadable_message(first_error))
        with autocast():
            features, logits = model.features_and_logits(copy_to(images, device))
        features_MF[done : done + len(images)] = features
        logits_MK[done : done + len(images)] = logits
        done += len(images)
    model.train(was_training)
    return Pass(features_MF, logits_MK)


def backbone_features(name: str, weights: str, image_size: int) -> Callable[[list[str]], NDArray[np.floating]]:
    """A function from image paths to features of the pretrained backbone, for the domain gap of ``check``."""
    model = Model(create_backbone(name, weights, image_size), classes=2)
    model.to(choose_device(None))
    preprocessing = preprocessing_for(timm.data.resolve_data_config({}, model=model.backbone.trunk), image_size, 0.875)

    def features(paths: list[str]) -> NDArray[np.floating]:
        return run_pass(model, paths, preprocessing, batch_size=64, workers=None).features_MF.cpu().numpy()

    return features
