"""Bidirectional matching (Na et al., FixBi, CVPR 2021): what one network is sure of teaches the other."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def bidirectional_matching(student_BK: Tensor, teacher_labels_B: Tensor, sure_B: Tensor) -> Tensor:
    """L_bim = mean of CE(student, the teacher's label) where the teacher is sure of it; 0 where it never is."""
    crossed_B = F.cross_entropy(student_BK, teacher_labels_B, reduction="none")
    return (crossed_B * sure_B).sum() / sure_B.sum().clamp_min(1)
