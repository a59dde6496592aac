"""Cross entropy on pseudo labels, certain images first (Du et al., CGDM, CVPR 2021, Eq. 11 and the authors' code)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.entropy import entropy_weights
from pmtrans.losses.precision import float32_losses


@float32_losses
def weighted_cross_entropy(logits_BK: Tensor, labels_B: Tensor) -> Tensor:
    """mean w CE, w = 1 + exp(-H) scaled to a sum of 1 (so in the authors' code): certain images weigh more."""
    weights_B = entropy_weights(logits_BK) / len(logits_BK)
    return (weights_B * F.cross_entropy(logits_BK, labels_B, reduction="none")).mean()
