"""Features whose class two classifiers name alike (Zhang et al., Domain-Symmetric Networks, CVPR 2019).

C^st has the outputs of C^s and C^t under one softmax. Suffixes: B images, K classes, J = 2K outputs, C^s first.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def category_confusion(source_BJ: Tensor, labels_B: Tensor) -> Tensor:
    """F^st_category: a source image is of its class in both halves alike."""
    classes = source_BJ.shape[1] // 2
    return (F.cross_entropy(source_BJ, labels_B) + F.cross_entropy(source_BJ, labels_B + classes)) / 2
