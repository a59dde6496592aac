"""``torch.export`` programs: torch runs them without this package."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from pmtrans.inference.export.graph import ExportedGraph, dynamic_axes, example_input, metadata, silence_exporter
from pmtrans.inference.export.parity import RuntimeOutput
from pmtrans.run.model_folder import TrainedModel


def write_program(path: Path, trained: TrainedModel, with_preprocessing: bool) -> None:
    """Write a ``.pt2`` file, with the metadata as its extra files."""
    graph = ExportedGraph(trained, with_preprocessing).eval()
    with silence_exporter():
        program = torch.export.export(
            graph, (example_input(trained, with_preprocessing),), dynamic_shapes=(dynamic_axes(with_preprocessing),)
        )
        buffer = io.BytesIO()  # torch's own writer ends the process where the disk is full
        torch.export.save(program, buffer, extra_files=metadata(trained, with_preprocessing))
    path.write_bytes(buffer.getbuffer())


class TorchProgram:
    """An exported program, run on the CPU."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._module: Any = torch.export.load(file).module()

    @torch.no_grad()
    def __call__(self, images: NDArray[Any]) -> RuntimeOutput:
        return RuntimeOutput(*(output.numpy() for output in self._module(torch.tensor(images))))
