"""Features of a bare backbone, before any training: what ``check`` measures the gap between two domains on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import timm.data
import torch
from numpy.typing import NDArray

from pmtrans.backbones.create import create_backbone
from pmtrans.data.transforms import preprocessing_for
from pmtrans.evaluation.passes import run_pass
from pmtrans.model import Model


def backbone_features(name: str, weights: str, image_size: int) -> Callable[[list[str]], NDArray[np.floating]]:
    """A function from image paths to their features."""
    model = Model(create_backbone(name, weights, image_size), classes=2)
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    preprocessing = preprocessing_for(timm.data.resolve_data_config({}, model=model.backbone.trunk), image_size, 0.875)

    def features(paths: list[str]) -> NDArray[np.floating]:
        return run_pass(model, paths, preprocessing, batch_size=64, workers=2).features_MF.cpu().numpy()

    return features
