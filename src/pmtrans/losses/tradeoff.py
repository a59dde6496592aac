"""alpha: the weight of the mixup losses, relative to the classification loss.

``learned``   homoscedastic-uncertainty form (Kendall et al., CVPR 2018): exp(-r) L + r, one r for each loss, so that
              the floor of one does not shrink the other; it cannot collapse to 0.
``softplus``  as in the authors' code: softplus of a scalar trained by descent, one per loss; it can only shrink.
``ramp``      2 / (1 + exp(-10 p)) - 1 of the training progress p (Ganin and Lempitsky, ICML 2015).
``fixed``     a constant.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TradeoffKind = Literal["learned", "ramp", "fixed", "softplus"]


def ramp(progress: float) -> float:
    """From 0 to 1 as progress goes from 0 to 1, steep at first: 2 / (1 + exp(-10 p)) - 1."""
    return math.tanh(5 * progress)  # equal; unlike exp, torch.compile keeps tanh as a function of the step


class Tradeoff(nn.Module):
    """Weights the parts of CE_{s,i,t}. ``value``: the constant, the height of the ramp, or the start of ``learned``."""

    def __init__(self, kind: TradeoffKind, value: float = 1.0) -> None:
        super().__init__()
        self.kind = kind
        self.value = value
        if kind == "learned":
            self.log_variance = nn.Parameter(torch.full((2,), -math.log(value)))
        elif kind == "softplus":
            self.raw = nn.Parameter(torch.full((2,), -2.0))

    def alpha(self, progress: float) -> Tensor | float:
        """The current weight, for the log: the mean of both where each loss has its own."""
        if self.kind == "learned":
            return torch.exp(-self.log_variance.detach()).mean()
        if self.kind == "softplus":
            return F.softplus(self.raw.detach()).mean()
        return self.value * (ramp(progress) if self.kind == "ramp" else 1.0)

    def forward(self, feature_space: Tensor, label_space: Tensor, progress: float) -> Tensor:
        """alpha (L_f + L_l), plus the regulariser if alpha is learned."""
        if self.kind == "learned":
            weight = torch.exp(-self.log_variance)
            return weight[0] * feature_space + weight[1] * label_space + self.log_variance.sum()
        if self.kind == "softplus":
            weight = F.softplus(self.raw)
            return weight[0] * feature_space + weight[1] * label_space
        return self.alpha(progress) * (feature_space + label_space)
