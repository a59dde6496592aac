"""Fixed-ratio mixup (Na et al., FixBi, CVPR 2021)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def fixed_ratio_mixup(mixed_BK: Tensor, labels_B: Tensor, pseudo_labels_B: Tensor, ratio: float) -> Tensor:
    """L_fm = ratio CE(mixed, y^s) + (1 - ratio) CE(mixed, yhat^t) of images that are ``ratio`` source."""
    return ratio * F.cross_entropy(mixed_BK, labels_B) + (1 - ratio) * F.cross_entropy(mixed_BK, pseudo_labels_B)
