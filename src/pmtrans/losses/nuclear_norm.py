"""Batch nuclear-norm maximisation (Cui et al., CVPR 2020, Eq. "L_bnm")."""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.losses.precision import float32_losses
from pmtrans.machine import fallback_device


@float32_losses
def batch_nuclear_norm_loss(logits_BK: Tensor) -> Tensor:
    """-||P||_* / min(B, K), P the B x K predictions: the mean singular value, as in the authors' code.

    The paper divides by B, which is the same if B <= K. The gradient of a sum of singular values is U V^T, which is
    finite even where singular values coincide.
    """
    probabilities_BK = logits_BK.softmax(1).to(fallback_device(logits_BK.device))
    singular: Tensor = torch.linalg.svdvals(probabilities_BK)
    return -singular.mean().to(logits_BK.device)
