"""Distillation between two branches (Xu et al., CDTrans, ICLR 2022, Eq. 7)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def distillation_loss(teacher_logits_BK: Tensor, student_logits_BK: Tensor) -> Tensor:
    """L_dtl = -mean sum_k q_k log p_k, q = softmax of the teacher, p of the student; both receive gradients."""
    return F.cross_entropy(student_logits_BK, teacher_logits_BK.softmax(1))
