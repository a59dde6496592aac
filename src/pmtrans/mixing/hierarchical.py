"""PatchMix with a ratio for the pair: patches vary around it, so that label weights reach from one parent to the other.

Independent patches average out: with N of them, the mean ratio of a pair deviates from the Beta's mean by 1 / sqrt(N)
of the Beta's own deviation, and every mixed image is half and half.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.mixing.beta import draw
from pmtrans.mixing.mixing import Mixing

CONCENTRATION = 2.0  # of the patches around the pair's ratio: at 1/2 they are uniform
EDGE = 0.02  # keeps both concentrations above 0.04: below, samples have no finite gradient


class HierarchicalPatchMix(Mixing):
    """lambda ~ Beta(b, g) for a pair, lambda_k ~ Beta(c lambda, c (1 - lambda)) for its patches: lambda on average."""

    def ratios(self, pairs: int) -> Tensor:
        patches = self.grid[0] * self.grid[1]
        with torch.autocast(self.beta.raw.device.type, enabled=False):
            b_B1, g_B1 = patch_concentrations(self.beta.sample((pairs, 1)))
            return draw(b_B1.expand(-1, patches), g_B1.expand(-1, patches))


def patch_concentrations(pair_B1: Tensor) -> tuple[Tensor, Tensor]:
    """Both concentrations of the Beta that the patches of a pair are drawn from."""
    pair_B1 = pair_B1.clamp(EDGE, 1 - EDGE)
    return CONCENTRATION * pair_B1, CONCENTRATION * (1 - pair_B1)
