"""Semi-supervised mixup loss in the feature space, L_f (PMTrans, Eq. "mixupinfeature")."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.precision import float32_losses

Positives = Literal["mean", "sum"]


@float32_losses
def mixup_feature_loss(
    mixed_BF: Tensor,
    source_BF: Tensor,
    target_BF: Tensor,
    source_similarity_BB: Tensor,
    target_similarity_BB: Tensor,
    source_weight_B: Tensor,
    target_weight_B: Tensor,
    temperature: float = 1.0,
) -> Tensor:
    """L_f = mean(lambda^s CE(d(x^i, x^s), Y^is)) + mean(lambda^t CE(d(x^i, x^t), Y^it))."""
    source_B = similarity_cross_entropy(mixed_BF, source_BF, source_similarity_BB, temperature)
    target_B = similarity_cross_entropy(mixed_BF, target_BF, target_similarity_BB, temperature)
    return (source_weight_B * source_B).mean() + (target_weight_B * target_B).mean()


def similarity_cross_entropy(mixed_BF: Tensor, other_BF: Tensor, labels_BB: Tensor, temperature: float) -> Tensor:
    """CE_B between the row-wise softmax of cosine similarities and the label similarities."""
    cosine_BB = F.normalize(mixed_BF, dim=1) @ F.normalize(other_BF, dim=1).T
    return -(labels_BB * F.log_softmax(cosine_BB / temperature, dim=1)).sum(1)


def label_similarity(labels_B: Tensor, positives: Positives = "mean") -> Tensor:
    """Y = y y^T: 1 where two samples share a class. ``mean``: rows normalised to sum 1; ``sum``: not normalised."""
    same_BB = (labels_B[:, None] == labels_B[None, :]).float()
    return same_BB / same_BB.sum(1, keepdim=True) if positives == "mean" else same_BB


def identity_similarity(like_B: Tensor) -> Tensor:
    """Y^it without class information: an intermediate image resembles its own target parent only."""
    return torch.eye(len(like_B), device=like_B.device)
