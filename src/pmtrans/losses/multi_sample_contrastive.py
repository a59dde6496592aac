"""Multi-sample contrastive loss over source-target affinities (Sharma et al., ILA-DA, CVPR 2021, Eq. "L_msc")."""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.losses.precision import float32_losses
from pmtrans.machine import fallback_device


@float32_losses
def affinity(source_SF: Tensor, target_TF: Tensor) -> Tensor:
    """phi(s, t) = 1 / (1 + ||f_s - f_t||), S x T."""
    place = fallback_device(source_SF.device)
    distances_ST = torch.cdist(source_SF.to(place), target_TF.to(place)).to(source_SF.device)
    return 1 / (1 + distances_ST)


@torch.no_grad()
def neighbour_labels(affinity_ST: Tensor, labels_S: Tensor, classes: int, neighbours: int) -> tuple[Tensor, Tensor]:
    """Labels_T by a vote of the nearest sources, and a similarity ratio_T as confidence.

    The ratio is the summed affinity of the nearest sources of the voted class over that of the nearest others. Ties go
    to the class with more affinity among the voters.
    """
    neighbours = min(neighbours, len(labels_S))
    nearest_ST, index = affinity_ST.topk(neighbours, dim=0)
    vote_JTK = torch.nn.functional.one_hot(labels_S[index], classes).float()
    vote_TK = vote_JTK.sum(0) + (vote_JTK * nearest_ST[..., None]).sum(0) / (neighbours + 1)
    labels_T = vote_TK.argmax(1)
    same_ST = labels_S[:, None] == labels_T[None, :]
    same_T = affinity_ST.masked_fill(~same_ST, 0).topk(neighbours, dim=0).values.sum(0)
    other_T = affinity_ST.masked_fill(same_ST, 0).topk(neighbours, dim=0).values.sum(0)
    return labels_T, same_T / other_T.clamp_min(1e-12)


@float32_losses
def multi_sample_contrastive_loss(affinity_ST: Tensor, labels_S: Tensor, labels_T: Tensor, kept_T: Tensor) -> Tensor:
    """-mean_s log sum_{t of the same class} softmax_t phi(s, t), over the kept targets.

    Sources without a positive or without a negative among the kept targets are left out.
    """
    same_ST = (labels_S[:, None] == labels_T[None, :]) & kept_T
    used_S = same_ST.any(1) & (~same_ST & kept_T).any(1)
    # -1e4, not -inf: rows that are left out would have NaN gradients
    all_S = affinity_ST.masked_fill(~kept_T, -1e4).logsumexp(1)
    same_S = affinity_ST.masked_fill(~same_ST, -1e4).logsumexp(1)
    loss_S = (all_S - same_S) * used_S
    return loss_S.sum() / used_S.sum().clamp_min(1)
