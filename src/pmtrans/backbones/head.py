"""The classifier C on the features: linear (which timm can load), or one of the shapes that published codes have."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

HeadKind = Literal["linear", "mlp", "weight_norm", "pair", "mlp_pair"]


def create_head(kind: HeadKind, features: int, classes: int) -> nn.Module:
    """``linear``: one layer. ``mlp``: F -> 2F -> K with GELU; dropout 0.2 on the hidden layer and on the logits.

    ``weight_norm``: one layer whose rows are a length times a direction (SHOT's). ``pair``, ``mlp_pair``: one of the
    first two and an opposing classifier (CGDM's).
    """
    if kind in ("pair", "mlp_pair"):
        first = create_head("linear" if kind == "pair" else "mlp", features, classes)
        return ClassifierPair(first, opposing_classifier(features, classes))
    if kind == "mlp":
        layers = (
            nn.Linear(features, 2 * features), nn.GELU(), nn.Dropout(0.2),
            nn.Linear(2 * features, classes), nn.Dropout(0.2),
        )  # fmt: skip
        return _initialised(nn.Sequential(*layers))
    linear = _initialised(nn.Linear(features, classes))
    return weight_norm(linear) if kind == "weight_norm" else linear


def opposing_classifier(features: int, classes: int, hidden: int = 1024) -> nn.Module:
    """features -> hidden -> K with ReLU and dropout: it can disagree where a linear one has the head's own optimum."""
    return nn.Sequential(
        nn.Linear(features, hidden), nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden, classes),
    )  # fmt: skip


class ClassifierPair(nn.Module):
    """Two classifiers that predict together: the sum of their logits."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, features_BF: Tensor) -> Tensor:
        logits_BK: Tensor = self.first(features_BF) + self.second(features_BF)
        return logits_BK


def _initialised(head: nn.Module) -> nn.Module:
    for layer in head.modules():
        if isinstance(layer, nn.Linear):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
    return head
