"""Whether the weights of a model folder are those of the architecture it names: told by shapes, before any is loaded.

The architecture is outlined without memory, and the header of the weights file says what it holds, so that a folder
that asks for a transformer of absurd size is refused at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from pmtrans.errors import one_line
from pmtrans.model import Model

MAX_PATCHES = 16_384  # of an image: attention takes their square; timm's largest transformers have a quarter of them
_FLOATS = ("F64", "F32", "F16", "BF16")


def refuse_misfit(file: Path, outline: Model, tensors: Mapping[str, Tensor], ignored: Iterable[str]) -> None:
    """``tensors``: what the file must hold; more is an error too, but for names that begin with one of ``ignored``."""
    if problem := _find_misfit(file, outline, tensors, tuple(ignored)):
        raise ValueError(f"weights do not fit {outline.backbone.name!r}: {problem}")


def _find_misfit(file: Path, outline: Model, tensors: Mapping[str, Tensor], ignored: tuple[str, ...]) -> str:
    if outline.backbone.patches > MAX_PATCHES:
        return f"{outline.backbone.patches} patches an image, at most {MAX_PATCHES} are possible"
    with safe_open(file, "pt") as opened:
        held = set(opened.keys())
        for name, expected in tensors.items():
            if name not in held:
                return f"{file.name} has no {name}"
            found = opened.get_slice(name)
            if found.get_shape() != list(expected.shape):
                return f"{name} is {found.get_shape()} in {file.name}, not {list(expected.shape)}"
            if expected.is_floating_point() and found.get_dtype() not in _FLOATS:
                return f"{name} is {one_line(found.get_dtype(), 20)} in {file.name}, not of floating point"
    strange = sorted(name for name in held - tensors.keys() if not name.startswith(ignored))
    return f"{file.name} holds {one_line(strange[0], 60)}, which it does not have" if strange else ""
