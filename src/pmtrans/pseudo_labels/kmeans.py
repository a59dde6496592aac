"""Pseudo labels of the whole target by two rounds of cosine k-means (Liang et al., SHOT, ICML 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


@torch.no_grad()
def kmeans_pseudo_labels(features_MF: Tensor, probabilities_MK: Tensor, chunk: int = 65536) -> Tensor:
    """Labels_M, deterministic; no M x M matrix, and no copy of the features beyond a chunk.

    A 1 is appended to each feature, then L2-normalised. Round 1: the centroid of a class is the probability-weighted
    mean; assign by cosine. Round 2: centroids from that hard assignment; assign again. Classes that nobody was
    assigned to are left out.
    """
    classes = probabilities_MK.shape[1]
    weighted_KF = _weighted_sums(features_MF, probabilities_MK.float(), chunk)
    first_M = _assign(features_MF, weighted_KF, chunk)
    hard_KF = _class_sums(features_MF, first_M, classes, chunk)
    present_K = torch.bincount(first_M, minlength=classes) > 0
    return _assign(features_MF, hard_KF, chunk, present_K)


def _points(features_CF: Tensor) -> Tensor:
    ones = torch.ones(len(features_CF), 1, device=features_CF.device)
    return F.normalize(torch.cat([features_CF.float(), ones], 1), dim=1)


def _weighted_sums(features_MF: Tensor, weights_MK: Tensor, chunk: int) -> Tensor:
    pieces = zip(features_MF.split(chunk), weights_MK.split(chunk), strict=True)
    return torch.stack([weights.T @ _points(features) for features, weights in pieces]).sum(0)


def _class_sums(features_MF: Tensor, labels_M: Tensor, classes: int, chunk: int) -> Tensor:
    sums_KF = torch.zeros(classes, features_MF.shape[1] + 1, device=features_MF.device)
    for features, labels in zip(features_MF.split(chunk), labels_M.split(chunk), strict=True):
        one_hot = F.one_hot(labels, classes).float()
        sums_KF += one_hot.T @ _points(features)  # a product, not scatter_add: deterministic on every device
    return sums_KF


def _assign(features_MF: Tensor, sums_KF: Tensor, chunk: int, present_K: Tensor | None = None) -> Tensor:
    """Nearest centroid by cosine; a centroid's length does not matter, so sums serve as means."""
    centroids_KF = F.normalize(sums_KF, dim=1)
    labels = []
    for features in features_MF.split(chunk):
        cosine_CK = _points(features) @ centroids_KF.T
        if present_K is not None:
            cosine_CK = cosine_CK.masked_fill(~present_K, -2.0)
        labels.append(cosine_CK.argmax(1))
    return torch.cat(labels)
