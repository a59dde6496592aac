"""The graph that is exported (images in, logits and calibrated probabilities out), its example input and metadata."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator
from dataclasses import asdict

import torch
from torch import Tensor, nn

from pmtrans.data.transforms import Preprocessing
from pmtrans.inference.export.resize import check_interpolation, resize
from pmtrans.run.model_folder import TrainedModel
from pmtrans.version import __version__

INPUT = "images"
OUTPUTS = ("logits", "probabilities")
UNKNOWN_OUTPUT = "unknown_score"  # a third one, where the model knows images of no class


def output_names(trained: TrainedModel) -> tuple[str, ...]:
    return OUTPUTS if trained.unknown is None else (*OUTPUTS, UNKNOWN_OUTPUT)


class PreprocessingGraph(nn.Module):
    """8-bit RGB images (B, H, W, 3) of any size to the model's input (B, 3, S, S)."""

    mean: Tensor
    std: Tensor

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        check_interpolation(preprocessing.interpolation)
        self.preprocessing = preprocessing
        self.register_buffer("mean", torch.tensor(preprocessing.mean)[:, None, None])
        self.register_buffer("std", torch.tensor(preprocessing.std)[:, None, None])

    def forward(self, images_BHWC: Tensor) -> Tensor:
        size, full = self.preprocessing.image_size, self.preprocessing.resize_to
        resized = resize(images_BHWC.permute(0, 3, 1, 2), full, self.preprocessing.interpolation)
        start = round((full - size) / 2)  # as torchvision's center_crop
        cropped = resized[..., start : start + size, start : start + size].float()
        normalised: Tensor = (cropped / 255 - self.mean) / self.std
        return normalised


class ExportedGraph(nn.Module):
    """The model with its calibration temperature, optionally its preprocessing, and where it is open its threshold."""

    def __init__(self, trained: TrainedModel, with_preprocessing: bool) -> None:
        super().__init__()
        self.preprocessing = PreprocessingGraph(trained.preprocessing) if with_preprocessing else nn.Identity()
        self.model = trained.model
        self.temperature = trained.temperature
        self.unknown = trained.unknown

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        logits_BK: Tensor = self.model(self.preprocessing(images))
        outputs = logits_BK, (logits_BK / self.temperature).softmax(1)
        return outputs if self.unknown is None else (*outputs, self.unknown.scores(logits_BK))


def example_input(trained: TrainedModel, with_preprocessing: bool) -> Tensor:
    """An input to trace with; its dynamic axes all differ in size, so the tracer keeps them apart."""
    if with_preprocessing:
        return torch.randint(0, 256, (2, 45, 39, 3), dtype=torch.uint8)
    size = trained.preprocessing.image_size
    return torch.randn(2, 3, size, size)


def dynamic_axes(with_preprocessing: bool) -> dict[int, torch.export.Dim]:
    """The axes of dynamic size: the batch, and with preprocessing also height and width."""
    names = {0: "batch", 1: "height", 2: "width"} if with_preprocessing else {0: "batch"}
    return {axis: torch.export.Dim(name, min=1) for axis, name in names.items()}


def metadata(trained: TrainedModel, with_preprocessing: bool) -> dict[str, str]:
    """Classes, version, temperature, architecture, preprocessing and, where there is one, the threshold, as strings."""
    is_open = {} if trained.unknown is None else {"unknown": json.dumps(asdict(trained.unknown))}
    return {
        "classes": json.dumps(list(trained.classes)),
        "version": __version__,
        "temperature": repr(trained.temperature),
        "architecture": trained.backbone.name,
        "preprocessing": json.dumps({"inside": with_preprocessing, **asdict(trained.preprocessing)}),
        **is_open,
    }


@contextlib.contextmanager
def silence_exporter() -> Iterator[None]:
    """No warnings, no log below an error, nothing on stdout: the parity check tells what matters."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
