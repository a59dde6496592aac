"""Self-penalisation (Na et al., FixBi, CVPR 2021): away from labels that a network itself doubts."""

from __future__ import annotations

from torch import Tensor

from pmtrans.losses.margin_disparity import log_complement
from pmtrans.losses.precision import float32_losses


@float32_losses
def self_penalisation(logits_BK: Tensor, labels_B: Tensor, doubted_B: Tensor, temperature: Tensor) -> Tensor:
    """L_sp = mean of -log(1 - p_label(z / T)) where the label is doubted; 0 where none is."""
    penalty_B = -log_complement(logits_BK / temperature, labels_B)
    return (penalty_B * doubted_B).sum() / doubted_B.sum().clamp_min(1)
