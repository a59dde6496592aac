"""Gradient reversal (Ganin and Lempitsky, Unsupervised Domain Adaptation by Backpropagation, ICML 2015)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pmtrans.losses.tradeoff import ramp
from pmtrans.methods.method import Moment


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, coefficient: float | Tensor) -> Tensor:
        ctx.coefficient = coefficient
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -ctx.coefficient * gradients[0], None


def reverse_gradient(values: Tensor, coefficient: float | Tensor = 1.0) -> Tensor:
    """The identity R(x) = x whose derivative is -coefficient: what lies before it ascends on what comes after."""
    reversed_values: Tensor = _Reversal.apply(values, coefficient)
    return reversed_values


def reversal_coefficient(moment: Moment, top: float = 1.0, ramp_steps: int | None = None) -> float:
    """top (2 / (1 + exp(-10 p)) - 1), from 0 at the first step to ``top``.

    p is the progress of the training; with ``ramp_steps`` it is step / ramp_steps, whatever the training's length
    (10000 gives the exp(-i / 1000) of most published recipes).
    """
    return top * ramp(moment.progress if ramp_steps is None else moment.step / ramp_steps)
