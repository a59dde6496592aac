"""Features that do not show their domain (Zhang et al., Domain-Symmetric Networks, CVPR 2019).

C^st has the outputs of C^s and C^t under one softmax. Suffixes: B images, K classes, J = 2K outputs, C^s first.
"""

from __future__ import annotations

from torch import Tensor

from pmtrans.losses.domain_halves import log_halves
from pmtrans.losses.precision import float32_losses


@float32_losses
def domain_confusion(target_BJ: Tensor) -> Tensor:
    """F^st_domain: a target image belongs to both halves alike."""
    source_B, target_B = log_halves(target_BJ)
    return -(source_B.mean() + target_B.mean()) / 2
