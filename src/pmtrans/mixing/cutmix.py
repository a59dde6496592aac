"""CutMix (Yun et al., ICCV 2019) on the patch grid: a box of the target pasted into the source."""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.mixing.mixing import Mixing


class CutMix(Mixing):
    """The box covers 1 - lambda of the image, lambda ~ Beta(b, g); its patches have ratio 0, the others 1.

    A binary mask has no gradient, so the Beta is not trained; label weights use the real area of the box.
    """

    def ratios(self, pairs: int) -> Tensor:
        return (~random_box(1 - self.beta.sample((pairs,)).detach(), self.grid)).float()


def random_box(share_B: Tensor, grid: tuple[int, int]) -> Tensor:
    """Mask_BN of a box at a random position that covers about ``share`` of the grid and has its aspect ratio."""
    height, width = grid
    side_B = share_B.sqrt()
    device = share_B.device
    inside_BHW = _span(side_B * height, height, device)[:, :, None] & _span(side_B * width, width, device)[:, None]
    return inside_BHW.flatten(1)


def _span(length_B: Tensor, cells: int, device: torch.device) -> Tensor:
    """Mask (B, cells) of an interval of about ``length`` cells around a random centre, clipped at the border."""
    centre_B = torch.rand(len(length_B), device=device) * cells
    low_B1 = (centre_B - length_B / 2).round().clamp(0, cells)[:, None]
    high_B1 = (centre_B + length_B / 2).round().clamp(0, cells)[:, None]
    cell = torch.arange(cells, device=device)
    return (cell >= low_B1) & (cell < high_B1)
