"""Jensen-Shannon divergence of predictions, and its mean over chosen pairs (Li et al., SCDA, ICCV 2021, Eq. 2)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def jensen_shannon(first_logits: Tensor, second_logits: Tensor) -> Tensor:
    """JS(p, q) = KL(p, m) / 2 + KL(q, m) / 2, m = (p + q) / 2, over the last axis; the other axes broadcast."""
    log_p, log_q = first_logits.log_softmax(-1), second_logits.log_softmax(-1)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return (log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)).sum(-1) / 2


def mean_over_pairs(values_BB: Tensor, pairs_BB: Tensor) -> Tensor:
    """Mean over the pairs that are true; 0 if there are none."""
    return (values_BB * pairs_BB).sum() / pairs_BB.sum().clamp_min(1)


@float32_losses
def pairwise_divergence(first_BK: Tensor, second_CK: Tensor, pairs_BC: Tensor, temperature: float) -> Tensor:
    """T^2 mean JS(softmax(z_i / T), softmax(z_j / T)) over the chosen pairs (i, j)."""
    js_BC = jensen_shannon(first_BK[:, None] / temperature, second_CK[None] / temperature)
    return temperature**2 * mean_over_pairs(js_BC, pairs_BC)
