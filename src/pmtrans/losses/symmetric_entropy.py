"""Entropy of two classifiers side by side (Zhang et al., Domain-Symmetric Networks, CVPR 2019).

C^st has the outputs of C^s and C^t under one softmax. Suffixes: B images, K classes, J = 2K outputs, C^s first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.losses.entropy import entropy
from pmtrans.losses.precision import float32_losses


@float32_losses
def symmetric_entropy(target_BJ: Tensor) -> Tensor:
    """M^st: entropy of a target image's classes, both halves added up."""
    source_BK, target_BK = target_BJ.chunk(2, dim=1)
    return entropy(torch.logaddexp(source_BK, target_BK)).mean()
