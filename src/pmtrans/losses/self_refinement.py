"""Self-refinement (Sun et al., Safe Self-Refinement for Transformer-based Domain Adaptation, CVPR 2022)."""

from __future__ import annotations

from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def self_refinement_loss(teacher_logits_BK: Tensor, student_logits_BK: Tensor, confidence: float = 0.4) -> Tensor:
    """L_SR = mean of KL(p || q) over the images with max p > confidence; 0 if there are none.

    p: teacher, q: student; both receive gradients. Which of clean and perturbed is the teacher is drawn at random.
    """
    log_p_BK, log_q_BK = teacher_logits_BK.log_softmax(1), student_logits_BK.log_softmax(1)
    divergence_B = (log_p_BK.exp() * (log_p_BK - log_q_BK)).sum(1)
    confident_B = (log_p_BK.detach().exp().amax(1) > confidence).float()
    return (confident_B * divergence_B).sum() / confident_B.sum().clamp_min(1)
