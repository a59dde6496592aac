"""Masked image consistency (Hoyer et al., MIC, CVPR 2023, Eq. 6 to 8, for classification)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def masked_consistency_loss(masked_logits_BK: Tensor, teacher_logits_BK: Tensor) -> Tensor:
    """L_M = mean(q CE(C(F(M * x^t)), yhat)), yhat and its confidence q from the teacher on the whole image."""
    confidence_B, labels_B = teacher_logits_BK.softmax(1).max(1)
    return (confidence_B.detach() * F.cross_entropy(masked_logits_BK, labels_B, reduction="none")).mean()
