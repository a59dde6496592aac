"""Pseudo labels by spherical k-means from given centres (Kang et al., CAN, CVPR 2019, Section 3.4)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.pseudo_labels.chunks import CHUNK, nearest, one_hot, slices, squared_lengths, weighted_sums


@torch.no_grad()
def spherical_kmeans(
    features_MF: Tensor, centres_KF: Tensor, rounds: int = 50, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """Labels_M and distances_M to the assigned centre, (1 - cos) / 2 in [0, 1]; stops when no label changes.

    A cluster that loses all its images keeps its last centre; a centre of zeros is an absent class.
    """
    classes = len(centres_KF)
    scale_M = squared_lengths(features_MF, chunk).clamp_min(1e-24).rsqrt()
    centres_KF = F.normalize(centres_KF.float(), dim=1)
    absent_K = centres_KF.abs().sum(1) == 0
    offset_K = centres_KF.new_zeros(classes).masked_fill(absent_K, -torch.inf)
    labels_M = torch.full((len(features_MF),), -1, device=features_MF.device)

    def members(piece: slice) -> Tensor:
        return one_hot(labels_M[piece], scale_M[piece], classes)

    for _ in range(rounds):
        assigned_M = nearest(features_MF, centres_KF, offset_K, chunk)
        if torch.equal(assigned_M, labels_M):
            break
        labels_M = assigned_M
        moved_KF = F.normalize(weighted_sums(features_MF, members, classes, chunk), dim=1)
        counts_K = torch.bincount(labels_M, minlength=classes)
        centres_KF = torch.where((counts_K > 0)[:, None], moved_KF, centres_KF)
    pieces = slices(len(features_MF), chunk)
    own_M = torch.cat([(features_MF[piece].float() * centres_KF[labels_M[piece]]).sum(1) for piece in pieces])
    return labels_M, (1 - own_M * scale_M) / 2
