"""Pseudo labels of the whole target by two rounds of cosine k-means (Liang et al., SHOT, ICML 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.pseudo_labels.chunks import CHUNK, Weights, nearest, one_hot, squared_lengths, weighted_sums


@torch.no_grad()
def kmeans_pseudo_labels(features_MF: Tensor, *, logits_MK: Tensor, chunk: int = CHUNK) -> Tensor:
    """Labels_M, deterministic; no M x M matrix, and no copy of features or logits beyond a chunk.

    A 1 is appended to each feature, then L2-normalised. Round 1: the centroid of a class is the mean weighted by the
    softmax of the logits; assign by cosine. Round 2: centroids from that hard assignment; assign again. Classes
    without an assigned image are left out.
    """
    classes = logits_MK.shape[1]
    scale_M = (squared_lengths(features_MF, chunk) + 1).rsqrt()  # (feature, 1) times this has length 1

    def soft(piece: slice) -> Tensor:
        return logits_MK[piece].float().softmax(1).mul_(scale_M[piece, None])

    def hard(piece: slice) -> Tensor:
        return one_hot(first_M[piece], scale_M[piece], classes)

    first_M = _round(features_MF, soft, classes, chunk)
    return _round(features_MF, hard, classes, chunk)


def _round(features_MF: Tensor, weights_CK: Weights, classes: int, chunk: int) -> Tensor:
    """Centroids from these weights, then assignment by cosine (which is scale-free, so sums serve as means)."""
    appended_K = torch.zeros(classes, device=features_MF.device)

    def counted(piece: slice) -> Tensor:
        weights = weights_CK(piece)
        appended_K.add_(weights.sum(0))  # the sum of the appended ones, in the same pass
        return weights

    sums_KF = weighted_sums(features_MF, counted, classes, chunk)
    centroids_KF = F.normalize(torch.cat([sums_KF, appended_K[:, None]], 1), dim=1)
    offset_K = centroids_KF[:, -1].masked_fill(appended_K == 0, -torch.inf)  # empty class: never assigned
    return nearest(features_MF, centroids_KF[:, :-1], offset_K, chunk)
