"""The seam of mixing: tokens of two domains in, tokens of the domain between them and the ratios out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pmtrans.mixing.beta import LearnableBeta


@dataclass
class Mixed:
    """The intermediate domain: ``tokens = ratio * source + (1 - ratio) * target``, patch by patch."""

    tokens_BND: Tensor
    ratio_BN: Tensor  # the SOURCE weight lambda_k of each patch, float32


class Mixing(nn.Module, ABC):
    """One way to draw ratios from the Beta; ``grid`` is the patch grid of the backbone."""

    def __init__(self, beta: LearnableBeta, grid: tuple[int, int]) -> None:
        super().__init__()
        self.beta = beta
        self.grid = grid

    @abstractmethod
    def ratios(self, pairs: int) -> Tensor:
        """lambda_BN for ``pairs`` pairs."""

    def forward(self, source_BND: Tensor, target_BND: Tensor) -> Mixed:
        """Definition 1: x_k = lambda_k * x_k^s + (1 - lambda_k) * x_k^t."""
        ratio_BN = self.ratios(len(source_BND))
        weight_BN1 = ratio_BN.unsqueeze(-1).to(source_BND.dtype)
        return Mixed(torch.lerp(target_BND, source_BND, weight_BN1), ratio_BN)
