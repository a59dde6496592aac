"""Consistency of two networks on one image (Na et al., FixBi, CVPR 2021)."""

from __future__ import annotations

from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def consistency_loss(one_BK: Tensor, other_BK: Tensor) -> Tensor:
    """L_cr = mean_i ||p_i - q_i||^2 of the predictions p and q of two networks."""
    return (one_BK.softmax(1) - other_BK.softmax(1)).square().sum(1).mean()
