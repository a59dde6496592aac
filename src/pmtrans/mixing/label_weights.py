"""How much of each parent's label an intermediate image carries (Eq. "lambda" of the paper)."""

from __future__ import annotations

import torch
from torch import Tensor


def label_weights(ratio_BN: Tensor, source_scores_BN: Tensor, target_scores_BN: Tensor) -> tuple[Tensor, Tensor]:
    """lambda^s = sum_k lambda_k a_k^s / (sum_k lambda_k a_k^s + sum_k (1 - lambda_k) a_k^t), lambda^t = 1 - lambda^s.

    The scores are normalised over patches. Uniform scores give Definition 1: the mean of the ratios.
    """
    source_B = (ratio_BN * source_scores_BN).sum(1)
    target_B = ((1 - ratio_BN) * target_scores_BN).sum(1)
    weight_B = source_B / (source_B + target_B)
    return weight_B, 1 - weight_B


def uniform_scores(like_BN: Tensor) -> Tensor:
    """Equal scores for all patches: the ablation without attention."""
    return torch.full_like(like_BN, 1 / like_BN.shape[1])
