"""The domain discriminator D: a perceptron that tells source from target."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from pmtrans.methods.method import Player, named


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
