"""The forward pass through ``torch.compile``, and one line where that cannot be had."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from pmtrans.errors import ConfigError, TrainingError, one_line


def compiled(module: nn.Module, device: torch.device, backend: str = "inductor") -> Any:
    """A callable beside the module: the module itself, its names and its state stay as they are."""
    if backend == "inductor":
        refuse_without_compiler(device)
    return torch.compile(module, backend=backend)


def refuse_without_compiler(device: torch.device) -> None:
    """Said before the first step instead of in the midst of it."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler
    from torch.utils._triton import has_triton

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        raise ConfigError(
            "train.compile=true needs a C++ compiler, and none is found: install g++ or clang, name one in the "
            "environment variable CXX, or leave train.compile off."
        ) from None
    if device.type == "cuda" and not has_triton():
        raise ConfigError("train.compile=true on a GPU needs Triton: pip install triton, or leave train.compile off.")


@contextmanager
def explained_compilation() -> Iterator[None]:
    """A compiler that is there and fails ends the run in one line."""
    from torch._dynamo.exc import BackendCompilerFailed
    from torch._inductor.exc import InductorError

    try:
        yield
    except (BackendCompilerFailed, InductorError) as error:
        raise TrainingError(
            f"torch.compile failed ({one_line(str(error).strip().splitlines()[0], 200)}): leave train.compile off."
        ) from None
