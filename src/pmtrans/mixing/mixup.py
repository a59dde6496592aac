"""Mixup (Zhang et al., ICLR 2018) on patch tokens: one ratio per pair of images."""

from __future__ import annotations

from torch import Tensor

from pmtrans.mixing.mixing import Mixing


class Mixup(Mixing):
    """lambda ~ Beta(b, g), the same for every patch of a pair."""

    def ratios(self, pairs: int) -> Tensor:
        return self.beta.sample((pairs, 1)).expand(-1, self.grid[0] * self.grid[1])
