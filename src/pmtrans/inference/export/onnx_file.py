"""ONNX: written by torch's exporter, read by ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pmtrans.errors import ModelError
from pmtrans.inference.export.graph import INPUT, OUTPUTS, ExportedGraph, dynamic_axes, example, metadata, quietly
from pmtrans.inference.export.parity import Answer
from pmtrans.run.model_folder import TrainedModel


def require_onnx() -> None:
    """Say what is missing before anything is computed."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise ModelError("ONNX needs an extra: pip install 'pmtrans[onnx]'") from None


def write_onnx(path: Path, trained: TrainedModel, with_preprocessing: bool) -> None:
    """A graph of float32 with an open batch, class names and version in its metadata."""
    require_onnx()
    graph = ExportedGraph(trained, with_preprocessing).eval()
    with quietly():
        program: Any = torch.onnx.export(
            graph,
            (example(trained, with_preprocessing),),
            dynamo=True,
            dynamic_shapes=(dynamic_axes(with_preprocessing),),
            input_names=[INPUT],
            output_names=list(OUTPUTS),
            verbose=False,
        )
    import onnx

    model = program.model_proto
    _drop_traces(model.graph)
    onnx.helper.set_model_props(model, metadata(trained, with_preprocessing))
    onnx.save(model, path)  # one file: nothing is lost when it is moved


def _drop_traces(graph: Any) -> None:
    """Node by node the exporter notes the lines of Python it came from: long, and paths of this machine."""
    del graph.metadata_props[:]
    for value in (*graph.value_info, *graph.input, *graph.output, *graph.initializer):
        del value.metadata_props[:]
    for node in graph.node:
        del node.metadata_props[:]
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _drop_traces(attribute.g)


def quantise_onnx(source: Path, path: Path) -> None:
    """Weights of the matrix products in 8 bits, a scale per column; activations are quantised as they come."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(source)
    del model.graph.value_info[:]  # the quantiser turns weights around and then trips over their old shapes
    with quietly():
        quantize_dynamic(
            model,
            path,
            op_types_to_quantize=["MatMul", "Gemm"],
            per_channel=True,
            reduce_range=True,  # 7 bits are used: with 8, CPUs without VNNI overflow and answer differently
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

    def __call__(self, images: NDArray[Any]) -> Answer:
        logits, probabilities = self.session.run(list(OUTPUTS), {INPUT: np.ascontiguousarray(images)})
        return Answer(logits, probabilities)
