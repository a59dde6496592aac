"""The discriminator's loss (Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def domain_adversarial_loss(
    source_logits: Tensor,
    target_logits: Tensor,
    source_weights: Tensor | None = None,
    target_weights: Tensor | None = None,
) -> Tensor:
    """Binary cross entropy with source = 1, mean of both domains; weights have a mean of 1 in each domain.

    The discriminator minimises it; the features, behind gradient reversal, maximise it.
    """
    source = F.binary_cross_entropy_with_logits(source_logits, torch.ones_like(source_logits), source_weights)
    target = F.binary_cross_entropy_with_logits(target_logits, torch.zeros_like(target_logits), target_weights)
    return (source + target) / 2
