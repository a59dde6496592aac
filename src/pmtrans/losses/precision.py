"""Losses are computed in float32, whatever the autocast around them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def float32_losses(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Raise half-precision tensor arguments to float32 and switch autocast off inside."""

    @functools.wraps(function)
    def inside(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        raised = [_raise(value) for value in args]
        named = {name: _raise(value) for name, value in kwargs.items()}
        device = next((v.device.type for v in (*raised, *named.values()) if isinstance(v, Tensor)), "cpu")
        with torch.autocast(device, enabled=False):
            return function(*raised, **named)

    return inside


def _raise(value: Any) -> Any:
    half = isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16)
    return value.float() if half else value
