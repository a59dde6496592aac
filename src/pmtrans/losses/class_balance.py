"""Class balance (Saito et al., Maximum Classifier Discrepancy, CVPR 2018, in the authors' code)."""

from __future__ import annotations

from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def class_balance_loss(logits_BK: Tensor) -> Tensor:
    """-mean_k log of the batch's mean prediction: no class may be forgotten."""
    return -logits_BK.softmax(1).mean(0).clamp_min(1e-6).log().mean()
