"""The interface of a mixing: tokens of two domains in, tokens of the intermediate domain and their ratios out.

Most mixings act on the tokens before the transformer. One that acts inside it overrides ``encode``; one whose labels
depend on the mixed image, not on its parents, overrides ``label_weights``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.encoding import Encoding
from pmtrans.mixing.beta import LearnableBeta
from pmtrans.mixing.label_weights import label_weights


@dataclass
class Mixed:
    """The intermediate domain: ``tokens = ratio * source + (1 - ratio) * target``, patch by patch."""

    tokens_BND: Tensor
    ratio_BN: Tensor  # the SOURCE weight lambda_k of each patch, float32


@dataclass
class Scores:
    """Attention scores of the patches, each row a distribution; ``mixed`` only if the mixing needs it."""

    source_BN: Tensor
    target_BN: Tensor
    mixed_BN: Tensor | None = None


class Mixing(nn.Module, ABC):
    """One way to draw ratios from the Beta. ``weighs``: the domain whose weight a drawn ratio is."""

    scores_mixed: ClassVar[bool] = False  # whether the label weights need the scores of the mixed image

    def __init__(
        self, beta: LearnableBeta, grid: tuple[int, int], weighs: Literal["source", "target"] = "source"
    ) -> None:
        super().__init__()
        self.beta = beta
        self.grid = grid
        self.weighs = weighs

    def check(self, backbone: Backbone) -> None:
        """Refuse, before the first step, a backbone that this mixing does not support."""

    @abstractmethod
    def ratios(self, pairs: int) -> Tensor:
        """lambda_BN for ``pairs`` pairs."""

    def mix(self, first_BND: Tensor, second_BND: Tensor) -> Mixed:
        """Definition 1: x_k = lambda_k * x_k^first + (1 - lambda_k) * x_k^second."""
        ratio_BN = self.ratios(len(first_BND))
        return Mixed(interpolate(first_BND, second_BND, ratio_BN.unsqueeze(-1)), ratio_BN)

    def forward(self, source_BND: Tensor, target_BND: Tensor) -> Mixed:
        """The tokens of the intermediate domain, and the source's ratios."""
        if self.weighs == "source":
            return self.mix(source_BND, target_BND)
        mixed = self.mix(target_BND, source_BND)
        return Mixed(mixed.tokens_BND, 1 - mixed.ratio_BN)

    def encode(self, backbone: Backbone, source_BND: Tensor, target_BND: Tensor, mixed: Mixed, scored: int) -> Encoding:
        """Source, target and mixed images, in this order, in one pass of 3B."""
        return backbone.encode(torch.cat([source_BND, target_BND, mixed.tokens_BND]), scored)

    def label_weights(self, ratio_BN: Tensor, scores: Scores) -> tuple[Tensor, Tensor]:
        """(lambda^s, lambda^t): how much of each parent's label a mixed image carries."""
        return label_weights(ratio_BN, scores.source_BN, scores.target_BN)


def interpolate(first: Tensor, second: Tensor, ratio: Tensor) -> Tensor:
    """ratio * first + (1 - ratio) * second, in float32 whatever the type of the tokens, which is kept.

    In half precision the ratio would lose its digits, and its gradient, a sum over all channels, most of them.
    """
    return torch.lerp(second.float(), first.float(), ratio).to(first.dtype)
