"""Entropies of predictions, in nats, and the weights made of them. B images, K classes."""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.losses.information_maximisation import information_maximisation_loss
from pmtrans.losses.precision import float32_losses


@float32_losses
def entropy(logits_BK: Tensor) -> Tensor:
    """H_B(p) = -sum_k p_k log p_k of p = softmax(logits); from logits, so that no log of 0 is ever taken."""
    log_p_BK = logits_BK.log_softmax(-1)
    return -(log_p_BK.exp() * log_p_BK).sum(-1)


@float32_losses
def entropy_of_mean(logits_BK: Tensor) -> Tensor:
    """H(mean_B p): large when the batch uses all classes."""
    mean_K = logits_BK.softmax(-1).mean(0)
    return -(mean_K * mean_K.clamp_min(torch.finfo(mean_K.dtype).tiny).log()).sum()


def mutual_information(logits_BK: Tensor) -> Tensor:
    """I = H(mean_B p) - mean_B H(p): maximised by predictions that are certain each and diverse together."""
    return -information_maximisation_loss(logits_BK)


@torch.no_grad()
def entropy_weights(logits_BK: Tensor) -> Tensor:
    """w_B = 1 + exp(-H(p)), scaled to a mean of 1: certain predictions weigh more (Long et al., CDAN+E, 2018)."""
    weights_B = 1 + torch.exp(-entropy(logits_BK))
    return weights_B / weights_B.mean()
