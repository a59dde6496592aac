"""The domain adversary: a discriminator that tells source from target, and the gradient that is reversed for it.

(Ganin and Lempitsky, Unsupervised Domain Adaptation by Backpropagation, ICML 2015.)
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from pmtrans.losses.tradeoff import ramp
from pmtrans.methods.method import Moment, Player, named

PUBLISHED_RAMP = 10_000 * 36  # exp(-i / 1000) at batches of 36 (CDAN, DANN beside it): 0.9 after 2,900 steps

ReversalImages = Annotated[
    int | None,
    Field(
        ge=1,
        description="images of each domain until the reversal is at its top, 0.9 of it after 0.29 of them; "
        "null: the training",
    ),
]


class Discriminator(nn.Module):
    """inputs -> hidden -> ... -> 1 with ReLU and dropout; ``layers`` linear layers in all. Gives logits, source = 1."""

    def __init__(self, inputs: int, hidden: int = 1024, layers: int = 3, dropout: float = 0.5) -> None:
        super().__init__()
        widths = [inputs, *[hidden] * (layers - 1)]
        inner: list[nn.Module] = []
        for width, following in pairwise(widths):
            inner += [nn.Linear(width, following), nn.ReLU(), nn.Dropout(dropout)]
        self.layers = nn.Sequential(*inner, nn.Linear(widths[-1], 1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of whatever shape precedes the last axis: B x inputs gives B, B x N x inputs gives B x N."""
        logits: Tensor = self.layers(inputs).squeeze(-1)
        return logits


def discriminator_player(discriminator: nn.Module, head_ratio: float) -> Player:
    """D as a player, under the name that it has in every method."""
    return Player("discriminator", named(discriminator, "discriminator"), ratio=head_ratio)


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


def reversal_coefficient(moment: Moment, top: float = 1.0, ramp_images: int | None = None) -> float:
    """top (2 / (1 + exp(-10 p)) - 1), from 0 at the first step to ``top``.

    p is the progress of the training; with ``ramp_images`` it is the share of so many images of each domain that were
    seen, whatever the training's length: a short training then has the first part of a published schedule, not all
    of it in a hurry.
    """
    return top * ramp(moment.progress if ramp_images is None else moment.images_seen / ramp_images)
