"""CutOut (DeVries and Taylor, 2017) on the patch grid: a box of one image blanked, its label unchanged."""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.mixing.cutmix import random_box
from pmtrans.mixing.mixing import Mixed, Mixing


class CutOut(Mixing):
    """Nothing is mixed: one image of each pair, chosen at random, with a box of 1 - lambda of its area blanked.

    The Beta is not trained. A blank patch is a token of zeros, to which its position embedding is added.
    """

    def ratios(self, pairs: int) -> Tensor:
        """All 1 or all 0: which image of the pair is used."""
        first_B1 = torch.rand(pairs, 1, device=self.beta.raw.device) < 0.5
        return first_B1.float().expand(-1, self.grid[0] * self.grid[1])

    def mix(self, first_BND: Tensor, second_BND: Tensor) -> Mixed:
        mixed = super().mix(first_BND, second_BND)
        blank_BN = random_box(1 - self.beta.sample((len(first_BND),)).detach(), self.grid)
        return Mixed(mixed.tokens_BND.masked_fill(blank_BN.unsqueeze(-1), 0.0), mixed.ratio_BN)
