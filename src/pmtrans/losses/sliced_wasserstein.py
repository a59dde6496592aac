"""Sliced Wasserstein discrepancy (Lee et al., Sliced Wasserstein Discrepancy for UDA, CVPR 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def sliced_wasserstein(first_BD: Tensor, second_BD: Tensor, projections: int = 128) -> Tensor:
    """Mean over random directions of the squared 2-Wasserstein distance between the projected samples.

    In one dimension, optimal transport pairs the sorted samples.
    """
    directions_DP = F.normalize(torch.randn(first_BD.shape[1], projections, device=first_BD.device), dim=0)
    return projected_distance(first_BD, second_BD, directions_DP)


def projected_distance(first_BD: Tensor, second_BD: Tensor, directions_DP: Tensor) -> Tensor:
    """The same along the given unit directions."""
    first_BP, second_BP = ((sample @ directions_DP).sort(dim=0).values for sample in (first_BD, second_BD))
    return (first_BP - second_BP).square().mean()
