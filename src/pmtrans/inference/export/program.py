"""``torch.export``: a program that torch runs without this package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from pmtrans.inference.export.graph import ExportedGraph, dynamic_axes, example, metadata, quietly
from pmtrans.inference.export.parity import Answer
from pmtrans.run.model_folder import TrainedModel


def write_program(path: Path, trained: TrainedModel, with_preprocessing: bool) -> None:
    """A ``.pt2`` file; what ONNX has as metadata is in its extra files."""
    graph = ExportedGraph(trained, with_preprocessing).eval()
    with quietly():
        program = torch.export.export(
            graph, (example(trained, with_preprocessing),), dynamic_shapes=(dynamic_axes(with_preprocessing),)
        )
        with path.open("wb") as file:  # an open file: torch insists on an ending otherwise
            torch.export.save(program, file, extra_files=metadata(trained, with_preprocessing))


class TorchProgram:
    """An exported program, run on the CPU."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._module: Any = torch.export.load(file).module()

    @torch.no_grad()
    def __call__(self, images: NDArray[Any]) -> Answer:
        logits, probabilities = self._module(torch.tensor(images))
        return Answer(logits.numpy(), probabilities.numpy())
