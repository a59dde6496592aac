"""Information maximisation (Krause et al., NIPS 2010; SHOT, ICML 2020): certain yet diverse predictions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def information_maximisation_loss(logits_BK: Tensor, base: float = math.e) -> Tensor:
    """L_IM = mean_i H(p_i) - H(mean_i p_i): the negative mutual information of images and predictions.

    ``base`` is that of the logarithm (TVT uses 2).
    """
    log_p_BK = logits_BK.log_softmax(1)
    log_mean_K = log_p_BK.logsumexp(0) - math.log(len(log_p_BK))  # stays finite where every p_k underflows
    mean_entropy = -(log_p_BK.exp() * log_p_BK).sum(1).mean()
    entropy_of_mean = -torch.sum(log_mean_K.exp() * log_mean_K)
    return (mean_entropy - entropy_of_mean) / math.log(base)
