"""Semi-supervised mixup loss in the label space, L_l (PMTrans, Eq. "mixupinlabel")."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def mixup_label_loss(
    mixed_logits_BK: Tensor,
    source_labels_B: Tensor,
    pseudo_labels_B: Tensor,
    source_weight_B: Tensor,
    target_weight_B: Tensor,
    confidence_B: Tensor | None = None,
    normalised: bool = False,
) -> Tensor:
    """L_l = mean(lambda^s CE(C(F(x^i)), y^s)) + mean(lambda^t CE(C(F(x^i)), yhat^t)).

    ``confidence`` of the pseudo label scales its target term. ``normalised``: only beside the other labels of the
    batch, sum(lambda^t c CE) / sum(lambda^t c) mean(lambda^t), as in the authors' code; its scale is then of no effect.
    """
    log_p_BK = F.log_softmax(mixed_logits_BK, dim=1)
    source_B = F.nll_loss(log_p_BK, source_labels_B, reduction="none")
    target_B = F.nll_loss(log_p_BK, pseudo_labels_B, reduction="none")
    if confidence_B is not None:
        target_B = target_B * confidence_B
        if normalised:
            confidence = (target_weight_B * confidence_B).sum().detach()  # a number in the authors' code
            trusted = (target_weight_B * target_B).sum() / confidence.clamp_min(torch.finfo(confidence.dtype).tiny)
            return (source_weight_B * source_B).mean() + trusted * target_weight_B.mean()
    return (source_weight_B * source_B).mean() + (target_weight_B * target_B).mean()
