"""Pseudo labels by spherical k-means from given centres (Kang et al., CAN, CVPR 2019, Section 3.4)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


@torch.no_grad()
def spherical_kmeans(features_MF: Tensor, centres_KF: Tensor, rounds: int = 50) -> tuple[Tensor, Tensor]:
    """Labels_M and distances_M to the own centre, (1 - cos) / 2 in [0, 1]; stops when no label changes.

    A cluster that loses all its images keeps its last centre; a centre of zeros is no class.
    """
    points_MF = F.normalize(features_MF.float(), dim=1)
    centres_KF = F.normalize(centres_KF.float(), dim=1)
    absent_K = centres_KF.abs().sum(1) == 0
    labels_M = torch.full((len(points_MF),), -1, device=points_MF.device)
    for _ in range(rounds):
        cosine_MK = (points_MF @ centres_KF.T).masked_fill(absent_K, -2.0)
        assigned_M = cosine_MK.argmax(1)
        if torch.equal(assigned_M, labels_M):
            break
        labels_M = assigned_M
        member_MK = F.one_hot(labels_M, len(centres_KF)).float()
        moved_KF = F.normalize(member_MK.T @ points_MF, dim=1)
        centres_KF = torch.where((member_MK.sum(0) > 0)[:, None], moved_KF, centres_KF)
    own_M = (points_MF * centres_KF[labels_M]).sum(1)
    return labels_M, (1 - own_M) / 2
