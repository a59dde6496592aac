"""Images of no known class are kept from looking like one (after entropy separation: DANCE, NeurIPS 2020)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def unknown_separation_loss(logits_BK: Tensor, unknown_B: Tensor) -> Tensor:
    """mean over unknown images of log K - H(p) >= 0: no class is more probable than another. 0 without such images."""
    log_p_BK = logits_BK.log_softmax(1)
    certainty_B = math.log(logits_BK.shape[1]) + (log_p_BK.exp() * log_p_BK).sum(1)
    unknown_B = unknown_B.to(certainty_B.dtype)
    return (unknown_B * certainty_B).sum() / unknown_B.sum().clamp_min(torch.ones_like(unknown_B[0]))
