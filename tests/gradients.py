"""A gradient that must be there."""

from __future__ import annotations

from torch import Tensor


def gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
