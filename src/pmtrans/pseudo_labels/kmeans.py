"""Pseudo labels of the whole target by k-means.

Two rounds of cosine k-means from the classifier's predictions (Liang et al., SHOT, ICML 2020), or spherical k-means
from given centres (Kang et al., CAN, CVPR 2019, Section 3.4).

600,000 features of width 1024 take 2.5 GB, so they are never copied, not even to normalise them: the factor 1 / length
goes into the weights of a sum, and the nearest centroid does not depend on it. All works a chunk of rows at a time.

Shapes: C rows of a chunk, M images, K classes, F feature width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 8192  # rows; larger chunks are not faster, and these take 34 MB at width 1024
PRIOR = 2  # known images of a class that its predictions are worth: one known image alone is mostly chance

Weights = Callable[[slice], Tensor]


@torch.no_grad()
def kmeans_pseudo_labels(
    features_MF: Tensor, *, logits_MK: Tensor, seeds_M: Tensor | None = None, chunk: int = CHUNK
) -> Tensor:
    """Labels_M, deterministic; no M x M matrix, and no copy of features or logits beyond a chunk.

    A 1 is appended to each feature, then L2-normalised. Round 1: the centroid of a class is the mean weighted by the
    softmax of the logits; assign by cosine. Round 2: centroids from that hard assignment; assign again. A class that
    no image is predicted as (round 1) or assigned to (round 2) is left out.

    ``seeds_M``: known labels, -1 elsewhere (constrained k-means; Basu, Banerjee and Mooney, ICML 2002). They are kept,
    and in round 1 the n known images of a class weigh n / (n + 2) of what all its predictions weigh together.
    """
    if seeds_M is not None:
        return _seeded_kmeans(features_MF, logits_MK, seeds_M, chunk)
    classes = logits_MK.shape[1]
    scale_M = (squared_lengths(features_MF, chunk) + 1).rsqrt()  # (feature, 1) times this has length 1

    def soft(piece: slice) -> Tensor:
        return logits_MK[piece].float().softmax(1).mul_(scale_M[piece, None])

    def hard(piece: slice) -> Tensor:
        return one_hot(first_M[piece], scale_M[piece], classes)

    predicted_M = torch.cat([logits_MK[piece].argmax(1) for piece in slices(len(logits_MK), chunk)])
    first_M = _round(features_MF, soft, predicted_M, classes, chunk)
    return _round(features_MF, hard, first_M, classes, chunk)


def _seeded_kmeans(features_MF: Tensor, logits_MK: Tensor, seeds_M: Tensor, chunk: int) -> Tensor:
    """The same two rounds with known labels."""
    classes = logits_MK.shape[1]
    known_M = seeds_M >= 0
    scale_M = (squared_lengths(features_MF, chunk) + 1).rsqrt()
    counts_K = torch.bincount(seeds_M[known_M], minlength=classes).float()
    mass_K = torch.zeros(classes, device=features_MF.device)
    for piece in slices(len(logits_MK), chunk):
        mass_K += (logits_MK[piece].float().softmax(1) * ~known_M[piece, None]).sum(0)
    weight_K = (mass_K / (counts_K + PRIOR)).clamp_min(1)  # of each known image of a class

    def soft(piece: slice) -> Tensor:
        labels_C = seeds_M[piece].clamp_min(0)
        known_CK = one_hot(labels_C, weight_K[labels_C], classes)
        guessed_CK = logits_MK[piece].float().softmax(1)
        return torch.where(known_M[piece, None], known_CK, guessed_CK).mul_(scale_M[piece, None])

    def hard(piece: slice) -> Tensor:
        return one_hot(first_M[piece], scale_M[piece], classes)

    predicted_M = torch.cat([logits_MK[piece].argmax(1) for piece in slices(len(logits_MK), chunk)])
    predicted_M = torch.where(known_M, seeds_M, predicted_M)
    first_M = torch.where(known_M, seeds_M, _round(features_MF, soft, predicted_M, classes, chunk))
    return torch.where(known_M, seeds_M, _round(features_MF, hard, first_M, classes, chunk))


def _round(features_MF: Tensor, weights_CK: Weights, present_M: Tensor, classes: int, chunk: int) -> Tensor:
    """Centroids from these weights, then assignment by cosine (which is scale-free, so sums serve as means).

    Only classes that are among ``present`` are assigned.
    """
    appended_K = torch.zeros(classes, device=features_MF.device)

    def counted(piece: slice) -> Tensor:
        weights = weights_CK(piece)
        appended_K.add_(weights.sum(0))  # the sum of the appended ones, in the same pass
        return weights

    sums_KF = weighted_sums(features_MF, counted, classes, chunk)
    centroids_KF = F.normalize(torch.cat([sums_KF, appended_K[:, None]], 1), dim=1)
    absent_K = torch.ones(classes, dtype=torch.bool, device=features_MF.device).index_fill_(0, present_M, False)
    offset_K = centroids_KF[:, -1].masked_fill(absent_K, -torch.inf)
    return nearest(features_MF, centroids_KF[:, :-1], offset_K, chunk)


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
