"""Self-refinement (Sun et al., Safe Self-Refinement for Transformer-based Domain Adaptation, CVPR 2022)."""

from __future__ import annotations

from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def self_refinement_loss(taught_logits_BK: Tensor, learning_logits_BK: Tensor, confidence: float = 0.4) -> Tensor:
    """L_SR = mean of KL(p || q) over the images with max p > confidence; 0 where there is none.

    p: the taught side, q: the learning one; nothing is detached. Which of clean and perturbed is p, a coin decides.
    """
    log_p_BK, log_q_BK = taught_logits_BK.log_softmax(1), learning_logits_BK.log_softmax(1)
    divergence_B = (log_p_BK.exp() * (log_p_BK - log_q_BK)).sum(1)
    sure_B = (log_p_BK.detach().exp().amax(1) > confidence).float()
    return (sure_B * divergence_B).sum() / sure_B.sum().clamp_min(1)
