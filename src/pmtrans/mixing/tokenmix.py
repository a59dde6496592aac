"""TokenMix (Liu et al., ECCV 2022): many small blocks of target tokens pasted into the source."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.mixing.mixing import Mixing


class TokenMix(Mixing):
    """Random blocks that cover 1 - lambda of the patches, lambda ~ Beta(b, g), spread over the whole image.

    Labels are weighted by activation, as in TokenMix, but with the backbone's scores of both parents instead of those
    of a separate teacher. A binary mask has no gradient, so the Beta is not trained.
    """

    def ratios(self, pairs: int) -> Tensor:
        height, width = self.grid
        side = max(1, min(height, width) // 5)  # 2 x 2 of 14 x 14 patches
        device = self.beta.raw.device
        replaced_B1 = ((1 - self.beta.sample((pairs, 1)).detach()) * height * width).round()
        cells = (-(-height // side) + 1, -(-width // side) + 1)
        order_BHW = F.interpolate(torch.rand(pairs, 1, *cells, device=device), scale_factor=side, mode="nearest")[:, 0]
        top, left = torch.randint(side, (2,)).tolist()  # random offset of the lattice of blocks
        order_BN = order_BHW[:, top : top + height, left : left + width].flatten(1)
        order_BN = order_BN + 1e-4 * torch.rand(order_BN.shape, device=device)  # random order inside a block
        rank_BN = order_BN.argsort(1).argsort(1)
        return (rank_BN >= replaced_B1).float()
