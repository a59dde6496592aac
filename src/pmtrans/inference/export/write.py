"""Export to a file: written under a temporary name, checked for parity, and only then renamed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from PIL import Image

from pmtrans.errors import ConfigError, ModelError, RunError, one_line
from pmtrans.files import write_atomically
from pmtrans.inference.export.onnx_file import OnnxModel, quantise_onnx, require_onnx, write_onnx
from pmtrans.inference.export.openvino_file import OpenVinoModel, require_openvino, staged_ir, weights_of
from pmtrans.inference.export.parity import Parity, Runtime, measure_parity, require_parity
from pmtrans.inference.export.program import TorchProgram, write_program
from pmtrans.run.model_folder import TrainedModel

Format = Literal["onnx", "torch", "openvino"]
TOLERANCE = 1e-4  # largest difference of a probability in float32
INT8_TOLERANCE = 0.25  # 8-bit weights change probabilities: this only detects a broken model

ENDINGS: dict[str, Format] = {".onnx": "onnx", ".pt2": "torch", ".xml": "openvino"}


def choose_format(out: Path, wanted: Format | None, overwrite: bool = False) -> Format:
    """The format that the ending of ``out`` means, or ``wanted`` where it means none; nothing is replaced unasked."""
    meant, shown = ENDINGS.get(out.suffix.lower()), one_line(out)
    if wanted is not None and meant not in (None, wanted):
        raise ConfigError(f"--format {wanted} contradicts the ending of --out {shown!r}, which means {meant}.")
    format = wanted or meant
    if format is None:
        raise ConfigError(f"--out {shown!r} ends neither in .onnx nor in .pt2 nor in .xml: name one, or a --format.")
    if format == "openvino" and out.suffix != ".xml":
        raise ConfigError(f"OpenVINO opens .xml files only: --out {shown!r} must end so.")
    for file in (out, weights_of(out)) if format == "openvino" else (out,):
        shown = one_line(file)
        if file.is_dir():
            raise RunError(f"{shown!r} is a folder: give --out a file.")
        if file.exists() and not overwrite:
            raise RunError(f"{shown!r} exists: choose another file, or replace it with --overwrite.")
    return format


def refuse_impossible(format: Format, with_preprocessing: bool, int8: bool) -> None:
    """What a format cannot hold, and a package that is missing, before anything is computed."""
    if int8 and format != "onnx":
        raise ModelError("8-bit weights are for ONNX: use --format onnx with --int8.")
    if with_preprocessing and format == "openvino":
        raise ModelError("OpenVINO has no float64, which an exact resize needs: use ONNX with --with-preprocessing.")
    if format == "onnx":
        require_onnx()
    if format == "openvino":
        require_openvino()


def export_model(
    trained: TrainedModel,
    out: Path,
    format: Format,
    images: Sequence[Image.Image],
    with_preprocessing: bool = False,
    int8: bool = False,
    tolerance: float | None = None,
) -> Parity:
    """Write ``out`` and return its parity on ``images``; a mismatch raises and leaves no file."""
    refuse_impossible(format, with_preprocessing, int8)
    if out.is_dir():
        raise RunError(f"{one_line(out)!r} is a folder: give --out a file.")
    parities: list[Parity] = []

    def check(runtime: Runtime) -> None:
        parity = measure_parity(trained, runtime, images, with_preprocessing)
        allowed = INT8_TOLERANCE if int8 else TOLERANCE
        require_parity(parity, allowed if tolerance is None else tolerance)
        parities.append(parity)

    def write(path: Path) -> None:
        if format == "openvino":
            with staged_ir(path, trained) as staged:
                check(OpenVinoModel(staged))
                out.unlink(missing_ok=True)  # a stop between the two files leaves no graph with another's weights
                write_atomically(weights_of(out), lambda weights: os.replace(weights_of(staged), weights))
                os.replace(staged, path)
            return
        if int8:
            float32 = path.with_name(f"{path.name}.float")
            try:
                write_onnx(float32, trained, with_preprocessing)
                quantise_onnx(float32, path)
            finally:
                float32.unlink(missing_ok=True)
        elif format == "onnx":
            write_onnx(path, trained, with_preprocessing)
        else:
            write_program(path, trained, with_preprocessing)
        check(OnnxModel(path) if format == "onnx" else TorchProgram(path))

    try:
        write_atomically(out, write)
    except OSError as error:
        raise RunError(f"{one_line(out)!r} cannot be written: {one_line(error.strerror or error)}.") from None
    return parities[0]
