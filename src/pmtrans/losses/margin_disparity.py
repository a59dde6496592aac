"""Margin disparity discrepancy (Zhang et al., Bridging Theory and Algorithm for DA, ICML 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def margin_disparity(
    source_BK: Tensor, target_BK: Tensor, adversary_source_BK: Tensor, adversary_target_BK: Tensor, margin: float
) -> Tensor:
    """gamma L(f'(x^s), f(x^s)) + L'(f'(x^t), f(x^t)), gamma = exp(rho) the margin factor; logits everywhere.

    L(z, y) = -log p_y and L'(z, y) = -log(1 - p_y) with y = argmax f: the adversary f' minimises it, so it agrees with
    f on the source and disagrees on the target; the features, behind gradient reversal, maximise it.
    """
    source = F.cross_entropy(adversary_source_BK, source_BK.argmax(1))
    target = -log_complement(adversary_target_BK, target_BK.argmax(1)).mean()
    return margin * source + target


def log_complement(logits_BK: Tensor, labels_B: Tensor) -> Tensor:
    """log(1 - softmax(logits)_label), accurate even where that probability rounds to 1."""
    others_BK = logits_BK.scatter(1, labels_B[:, None], -torch.inf)
    return others_BK.logsumexp(1) - logits_BK.logsumexp(1)
