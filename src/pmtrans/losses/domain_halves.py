"""Two classifiers side by side tell the domains apart (Zhang et al., Domain-Symmetric Networks, CVPR 2019).

C^st has the outputs of C^s and C^t under one softmax. Suffixes: B images, K classes, J = 2K outputs, C^s first.
"""

from __future__ import annotations

from torch import Tensor

from pmtrans.losses.precision import float32_losses


def log_halves(logits_BJ: Tensor) -> tuple[Tensor, Tensor]:
    """log of the probability mass of C^s and of C^t within C^st."""
    source_BK, target_BK = logits_BJ.log_softmax(1).chunk(2, dim=1)
    return source_BK.logsumexp(1), target_BK.logsumexp(1)


@float32_losses
def domain_loss(source_BJ: Tensor, target_BJ: Tensor) -> Tensor:
    """E^st_domain: source images belong to the half of C^s, target images to that of C^t."""
    return -log_halves(source_BJ)[0].mean() - log_halves(target_BJ)[1].mean()
