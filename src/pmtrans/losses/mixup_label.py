"""Semi-supervised mixup loss in the label space, L_l (PMTrans, Eq. "mixupinlabel")."""

from __future__ import annotations

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
) -> Tensor:
    """L_l = mean(lambda^s CE(C(F(x^i)), y^s)) + mean(lambda^t CE(C(F(x^i)), yhat^t)).

    ``confidence`` in [0, 1] of the pseudo label scales its target term.
    """
    log_p_BK = F.log_softmax(mixed_logits_BK, dim=1)
    source_B = F.nll_loss(log_p_BK, source_labels_B, reduction="none")
    target_B = F.nll_loss(log_p_BK, pseudo_labels_B, reduction="none")
    if confidence_B is not None:
        target_B = target_B * confidence_B
    return (source_weight_B * source_B).mean() + (target_weight_B * target_B).mean()
