"""Losses are computed in float32, under any autocast."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def float32_losses(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorator: cast half-precision tensor arguments to float32 and switch autocast off inside."""

    @functools.wraps(function)
    def in_float32(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        cast_args = [_cast(value) for value in args]
        cast_kwargs = {name: _cast(value) for name, value in kwargs.items()}
        device = next((v.device.type for v in (*cast_args, *cast_kwargs.values()) if isinstance(v, Tensor)), "cpu")
        with torch.autocast(device, enabled=False):
            return function(*cast_args, **cast_kwargs)

    return in_float32


def _cast(value: Any) -> Any:
    half = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if half else value
