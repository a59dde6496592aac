"""How far a pseudo label can be believed: the share of its own class among the centroids that are near the image.

Shapes: M images, K classes, F feature width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.pseudo_labels.kmeans import CHUNK, one_hot, slices, squared_lengths, weighted_sums

TEMPERATURE = 0.05  # of the cosines


@torch.no_grad()
def label_confidence(features_MF: Tensor, labels_M: Tensor, classes: int, chunk: int = CHUNK) -> Tensor:
    """Confidence_M in (0, 1]: softmax over k of cos(f_m, centroid_k) / 0.05, at the label of m.

    A centroid is the mean of the unit-length features that carry its label; a class without any has none.
    """
    scale_M = squared_lengths(features_MF, chunk).clamp_min(1e-24).rsqrt()
    sums_KF = weighted_sums(
        features_MF, lambda piece: one_hot(labels_M[piece], scale_M[piece], classes), classes, chunk
    )
    centroids_KF = F.normalize(sums_KF, dim=1)
    present_K = torch.zeros(classes, dtype=torch.bool, device=labels_M.device).index_fill_(0, labels_M, True)
    confidence_M = torch.empty(len(labels_M), device=features_MF.device)
    for piece in slices(len(labels_M), chunk):
        cosine_CK = (features_MF[piece].float() @ centroids_KF.T) * scale_M[piece, None]
        share_CK = (cosine_CK / TEMPERATURE).masked_fill(~present_K, -torch.inf).softmax(1)
        confidence_M[piece] = share_CK.gather(1, labels_M[piece, None]).squeeze(1)
    return confidence_M
