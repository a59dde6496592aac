"""Information maximisation (Krause et al., NIPS 2010; SHOT, ICML 2020): certain yet diverse predictions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pmtrans.losses.precision import float32_losses

LEAST = 1e-12  # in a denominator or a logarithm: its inverse, times a weight of 0, is still 0


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


@float32_losses
def weighted_information_loss(logits_BK: Tensor, weight_B: Tensor, present_K: Tensor) -> Tensor:
    """L_IM of the images by their weights, diverse over the classes that are present and over no others.

    mean_i H(p_i) - H(q), q the mean prediction over present classes, normalised. An absent class is not asked for;
    a batch without weight gives 0.
    """
    log_p_BK = logits_BK.log_softmax(1)
    share_B = weight_B / weight_B.sum().clamp_min(LEAST)
    mean_entropy = -(share_B * (log_p_BK.exp() * log_p_BK).sum(1)).sum()
    mean_K = (share_B @ log_p_BK.exp()) * present_K
    mean_K = mean_K / mean_K.sum().clamp_min(LEAST)
    return mean_entropy + (mean_K * mean_K.clamp_min(LEAST).log()).sum()
