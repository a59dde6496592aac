"""ONNX files: written by torch's exporter, run by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pmtrans.errors import ModelError
from pmtrans.inference.export.graph import (
    INPUT,
    ExportedGraph,
    dynamic_axes,
    example_input,
    metadata,
    output_names,
    silence_exporter,
)
from pmtrans.inference.export.parity import RuntimeOutput
from pmtrans.run.model_folder import TrainedModel


def require_onnx() -> None:
    """Raise now, before anything is computed, if the extra is not installed."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise ModelError("ONNX needs an extra: pip install 'pmtrans[onnx]'") from None


def write_onnx(path: Path, trained: TrainedModel, with_preprocessing: bool) -> None:
    """Write a float32 graph with a dynamic batch size, and classes and version in its metadata."""
    require_onnx()
    graph = ExportedGraph(trained, with_preprocessing).eval()
    with silence_exporter():
        program: Any = torch.onnx.export(
            graph,
            (example_input(trained, with_preprocessing),),
            dynamo=True,
            dynamic_shapes=(dynamic_axes(with_preprocessing),),
            input_names=[INPUT],
            output_names=list(output_names(trained)),
            verbose=False,
        )
    import onnx

    model = program.model_proto
    _drop_source_locations(model.graph)
    onnx.helper.set_model_props(model, metadata(trained, with_preprocessing))
    onnx.save(model, path)  # one file, without external data


def _drop_source_locations(graph: Any) -> None:
    """Delete the Python stack traces that the exporter adds to each node: long, and with local paths."""
    del graph.metadata_props[:]
    for value in (*graph.value_info, *graph.input, *graph.output, *graph.initializer):
        del value.metadata_props[:]
    for node in graph.node:
        del node.metadata_props[:]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _drop_source_locations(attribute.g)


def quantise_onnx(source: Path, path: Path) -> None:
    """Dynamic quantisation: 8-bit weights of matrix products, one scale per column; activations at run time."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(source)
    del model.graph.value_info[:]  # the quantiser transposes weights and fails on their recorded shapes
    with silence_exporter():
        quantize_dynamic(
            model,
            path,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            reduce_range=True,  # 7 bits: with 8, CPUs without VNNI saturate and results differ
            weight_type=QuantType.QInt8,
        )


class OnnxModel:
    """An ONNX file, run on the CPU."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        require_onnx()
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads or torch.get_num_threads()
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def __call__(self, images: NDArray[Any]) -> RuntimeOutput:
        return RuntimeOutput(*self.session.run(None, {INPUT: np.ascontiguousarray(images)}))
