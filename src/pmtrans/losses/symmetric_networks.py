"""Losses of two classifiers side by side (Zhang et al., Domain-Symmetric Networks, CVPR 2019, Eqs. 5 to 9).

C^st has the outputs of C^s and C^t under one softmax. Suffixes: B images, K classes, J = 2K outputs, C^s first.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.entropy import entropy
from pmtrans.losses.precision import float32_losses


def _halves(logits_BJ: Tensor) -> tuple[Tensor, Tensor]:
    """log of the probability mass of C^s and of C^t within C^st."""
    source_BK, target_BK = logits_BJ.log_softmax(1).chunk(2, dim=1)
    return source_BK.logsumexp(1), target_BK.logsumexp(1)


@float32_losses
def domain_loss(source_BJ: Tensor, target_BJ: Tensor) -> Tensor:
    """E^st_domain: source images belong to the half of C^s, target images to that of C^t."""
    return -_halves(source_BJ)[0].mean() - _halves(target_BJ)[1].mean()


@float32_losses
def category_confusion(source_BJ: Tensor, labels_B: Tensor) -> Tensor:
    """F^st_category: a source image is of its class in both halves alike."""
    classes = source_BJ.shape[1] // 2
    return (F.cross_entropy(source_BJ, labels_B) + F.cross_entropy(source_BJ, labels_B + classes)) / 2


@float32_losses
def domain_confusion(target_BJ: Tensor) -> Tensor:
    """F^st_domain: a target image belongs to both halves alike."""
    source_B, target_B = _halves(target_BJ)
    return -(source_B.mean() + target_B.mean()) / 2


@float32_losses
def symmetric_entropy(target_BJ: Tensor) -> Tensor:
    """M^st: entropy of a target image's classes, both halves added up."""
    source_BK, target_BK = target_BJ.chunk(2, dim=1)
    return entropy(torch.logaddexp(source_BK, target_BK)).mean()
