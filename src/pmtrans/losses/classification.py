"""Supervised classification loss on the source, L_cls (PMTrans, Eq. "L_cls^S")."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def classification_loss(logits_BK: Tensor, labels_B: Tensor, smoothing: float = 0.1) -> Tensor:
    """CE(C(F(x^s)), y^s), with label smoothing."""
    return F.cross_entropy(logits_BK, labels_B, label_smoothing=smoothing)
