"""Minimum class confusion (Jin et al., Minimum Class Confusion for Versatile Domain Adaptation, ECCV 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def minimum_class_confusion(logits_BK: Tensor, temperature: float = 2.5) -> Tensor:
    """L_MCC = (1/K) sum over j != k of |C_jk|, C = p^T diag(w) p with its rows normalised to sum 1 (Eq. 2 to 6).

    p = softmax(z / T); w = 1 + exp(-H(p)), scaled to sum B: certain predictions tell more about class confusion.
    No gradient flows through w.
    """
    log_p_BK = (logits_BK / temperature).log_softmax(1)
    p_BK = log_p_BK.exp()
    with torch.no_grad():
        weight_B = 1 + (p_BK * log_p_BK).sum(1).exp()
        weight_B = weight_B * (len(weight_B) / weight_B.sum())
    correlation_KK = (p_BK * weight_B[:, None]).T @ p_BK
    confusion_KK = correlation_KK / correlation_KK.sum(1, keepdim=True)
    return (confusion_KK.sum() - confusion_KK.trace()) / logits_BK.shape[1]
