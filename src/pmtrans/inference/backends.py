"""Prediction through another runtime: the same predictor, whose logits come from an exported file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from PIL import Image
from torch import Tensor

from pmtrans.inference.export.onnx_file import OnnxModel
from pmtrans.inference.export.openvino_file import OpenVinoModel
from pmtrans.inference.export.parity import Parity, Runtime
from pmtrans.inference.export.write import Format, export_model, refuse_impossible
from pmtrans.inference.predictor import Predictor
from pmtrans.run.model_folder import TrainedModel

Backend = Literal["onnx", "onnx-int8", "openvino"]
_FILES: dict[Backend, tuple[Format, str]] = {
    "onnx": ("onnx", "model.onnx"),
    "onnx-int8": ("onnx", "model-int8.onnx"),
    "openvino": ("openvino", "model.xml"),
}


def require_backend(backend: Backend) -> None:
    """Raise now if a package is missing."""
    refuse_impossible(_FILES[backend][0], with_preprocessing=False, int8=False)


def write_backend(
    trained: TrainedModel, backend: Backend, folder: Path, images: Sequence[Image.Image]
) -> tuple[Path, Parity]:
    """The model's file for ``backend`` in ``folder``, and how far it agrees with the model on ``images``.

    A probability that differs by more than an export may (1e-4, with 8-bit weights 0.25) raises.
    """
    format, name = _FILES[backend]
    return folder / name, export_model(trained, folder / name, format, images, int8=backend == "onnx-int8")


class RuntimePredictor(Predictor):
    """A predictor whose logits are computed by ONNX Runtime or OpenVINO, on the CPU.

    Calibration, abstention and ``unknown`` are those of the model. Attention maps need the model itself: an image
    whose map is asked for passes through both.
    """

    def __init__(self, trained: TrainedModel, backend: Backend, file: Path) -> None:
        super().__init__(trained, "cpu")
        self.runtime: Runtime = OpenVinoModel(file) if backend == "openvino" else OnnxModel(file)

    def logits(self, images: Tensor) -> Tensor:
        return torch.from_numpy(self.runtime(images.numpy()).logits)

    def logits_and_attention(self, images: Tensor) -> tuple[Tensor, Tensor]:
        _, maps = super().logits_and_attention(images)
        return self.logits(images), maps
