"""OpenVINO IR: a graph (``.xml``) and its weights (``.bin``) beside it, made from the ONNX graph, run on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pmtrans.errors import ModelError, one_line
from pmtrans.inference.export.onnx_file import write_onnx
from pmtrans.inference.export.parity import RuntimeOutput
from pmtrans.run.model_folder import TrainedModel


def require_openvino() -> None:
    """Raise now, before anything is computed, if the extra is not installed."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
        import openvino  # noqa: F401
    except ImportError:
        raise ModelError("OpenVINO needs an extra: pip install 'pmtrans[openvino]'") from None


def weights_of(graph: Path) -> Path:
    """The file with the weights of an IR: OpenVINO looks for it by the graph's name."""
    return graph.with_suffix(".bin")


@contextmanager
def staged_ir(graph: Path, trained: TrainedModel) -> Iterator[Path]:
    """An IR under temporary names beside ``graph``, deleted at the end."""
    onnx, staged = graph.with_name(f"{graph.name}.onnx"), graph.with_name(f"{graph.name}.xml")
    try:
        write_onnx(onnx, trained, with_preprocessing=False)
        ir_from_onnx(onnx, staged)
        yield staged
    finally:
        for file in (onnx, staged, weights_of(staged)):
            file.unlink(missing_ok=True)


def ir_from_onnx(source: Path, path: Path) -> None:
    """Write ``path`` and its weights in float32; the metadata of the ONNX file are in ``rt_info``, ``framework``.

    The graph is read by the runtime itself: ``openvino.convert_model`` reports its use over the network.
    """
    import openvino

    try:
        openvino.save_model(openvino.Core().read_model(source), path, compress_to_fp16=False)
    except RuntimeError as error:  # an operation that it does not know, a full disk
        raise ModelError(f"OpenVINO cannot write this model: {one_line(error)}") from None


class OpenVinoModel:
    """An IR, run on the CPU in float32: by default OpenVINO computes in bfloat16 where the CPU has it."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        require_openvino()
        import openvino

        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": threads or torch.get_num_threads(),
            "PERFORMANCE_HINT": "LATENCY",  # one pass at a time, with all threads
        }
        self._model: Any = openvino.Core().compile_model(path, "CPU", settings)

    def __call__(self, images: NDArray[Any]) -> RuntimeOutput:
        found = self._model(np.ascontiguousarray(images))
        return RuntimeOutput(*(np.array(found[output]) for output in self._model.outputs))  # the memory is reused
