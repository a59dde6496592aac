"""Sums and assignments over the features of a whole domain, a chunk of rows at a time.

600,000 features of width 1024 take 2.5 GB, so they are never copied, not even to normalise them: the factor 1 / length
goes into the weights of a sum, and the nearest centroid does not depend on it.

Shapes: C rows of a chunk, M images, K classes, F feature width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CHUNK = 8192  # rows; larger chunks are not faster, and these take 34 MB at width 1024

Weights = Callable[[slice], Tensor]


def slices(rows: int, chunk: int) -> list[slice]:
    """Cut ``rows`` rows into consecutive chunks."""
    return [slice(start, min(start + chunk, rows)) for start in range(0, rows, chunk)]


def weighted_sums(features_MF: Tensor, weights_CK: Weights, classes: int, chunk: int) -> Tensor:
    """Weighted sums_KF of the features; ``weights_CK(piece)`` returns the weights of the rows of a chunk.

    Matrix products instead of scatter-add: deterministic on every device.
    """
    sums_KF = torch.zeros(classes, features_MF.shape[1], device=features_MF.device)
    for piece in slices(len(features_MF), chunk):
        sums_KF.addmm_(weights_CK(piece).T, features_MF[piece].float())
    return sums_KF


def nearest(features_MF: Tensor, centroids_KF: Tensor, offset_K: Tensor, chunk: int) -> Tensor:
    """For each row, the class with the largest dot product plus offset."""
    labels_M = torch.empty(len(features_MF), dtype=torch.long, device=features_MF.device)
    for piece in slices(len(features_MF), chunk):
        labels_M[piece] = torch.addmm(offset_K, features_MF[piece].float(), centroids_KF.T).argmax(1)
    return labels_M


def one_hot(labels_C: Tensor, value_C: Tensor, classes: int) -> Tensor:
    """Rows with ``value`` at the label and 0 elsewhere."""
    return value_C.new_zeros(len(labels_C), classes).scatter_(1, labels_C[:, None], value_C[:, None])


def squared_lengths(features_MF: Tensor, chunk: int) -> Tensor:
    """Squared L2 norm of each row, without a squared copy of all rows."""
    return torch.cat([features_MF[piece].float().square().sum(1) for piece in slices(len(features_MF), chunk)])
