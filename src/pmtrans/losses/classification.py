"""Supervised classification loss on the source, L_cls (PMTrans, Eq. "L_cls^S")."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def classification_loss(
    logits_BK: Tensor, labels_B: Tensor, smoothing: float = 0.1, weight_B: Tensor | None = None
) -> Tensor:
    """CE(C(F(x^s)), y^s), with label smoothing; ``weight`` of each image, 1 in the mean over those that count."""
    if weight_B is None:
        return F.cross_entropy(logits_BK, labels_B, label_smoothing=smoothing)
    loss_B = F.cross_entropy(logits_BK, labels_B, label_smoothing=smoothing, reduction="none")
    return (weight_B * loss_B).mean()
