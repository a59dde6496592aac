"""The classifier C on the features: linear (which timm can load) or the MLP of the authors' code."""

from __future__ import annotations

from typing import Literal

from torch import nn

HeadKind = Literal["linear", "mlp"]


def create_head(kind: HeadKind, features: int, classes: int) -> nn.Module:
    """``linear``: one layer. ``mlp``: F -> 2F -> K with GELU; dropout 0.2 on the hidden layer and on the logits."""
    if kind == "linear":
        head: nn.Module = nn.Linear(features, classes)
    else:
        head = nn.Sequential(
            nn.Linear(features, 2 * features), nn.GELU(), nn.Dropout(0.2),
            nn.Linear(2 * features, classes), nn.Dropout(0.2),
        )  # fmt: skip
    for layer in head.modules():
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
    return head
