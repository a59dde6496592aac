"""Which classes a target holds, and how many of its images each has, by pseudo labels alone.

A class counts by the images on which two labellings agree: clusters (k-means) and neighbours (propagation). Both see
features, yet each errs in its own way, so an absent class, which only catches images at the borders of others, is
agreed on less than a present one. Classes that hardly any image is agreed to belong to are then left out, and the rest
is labelled again without them, until no class falls out (as partial adaptation does over its epochs: PADA, ECCV 2018).

Shapes: M images, K classes, F feature width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.machine import fallback_device
from pmtrans.pseudo_labels.kmeans import kmeans_pseudo_labels
from pmtrans.pseudo_labels.propagation import Graph, nearest_neighbours, propagated_probabilities

ABSENT = 0.3  # of the share that the class of a random image has: a class with less is not in the target
ROUNDS = 8


@torch.no_grad()
def agreed_shares(features_MF: Tensor, logits_MK: Tensor, graph: Graph | None = None) -> Tensor:
    """Shares_K, which sum to 1, of the images that k-means and propagation give the same label; in float64."""
    clusters_M = kmeans_pseudo_labels(features_MF, logits_MK=logits_MK)
    near_M = propagated_probabilities(features_MF, logits_MK.float().softmax(1), graph=graph).argmax(1)
    counted_M = near_M[near_M == clusters_M]
    counts_K = torch.bincount(counted_M if len(counted_M) else near_M, minlength=logits_MK.shape[1])
    counts_K = counts_K.to(fallback_device(counts_K.device), torch.float64)
    return counts_K / counts_K.sum()


def typical_share(shares_K: Tensor) -> Tensor:
    """sum_k s_k^2: the share, in the mean over images, of an image's own class. 1 / C for C equal classes."""
    return shares_K.square().sum()


@torch.no_grad()
def present_classes(features_MF: Tensor, logits_MK: Tensor, absent: float = ABSENT) -> tuple[Tensor, Tensor]:
    """(present_K, shares_K): classes with less than ``absent`` of the typical share are left out, round by round.

    Both are where float64 can be: for MPS on the CPU.
    """
    graph = nearest_neighbours(features_MF) if len(features_MF) > 1 else None
    present_K = torch.ones(logits_MK.shape[1], dtype=torch.bool, device=fallback_device(logits_MK.device))
    shares_K = agreed_shares(features_MF, logits_MK, graph)
    for _ in range(ROUNDS):
        kept_K = present_K & (shares_K >= absent * typical_share(shares_K))
        if torch.equal(kept_K, present_K):
            break
        present_K = kept_K
        shares_K = agreed_shares(features_MF, without_absent(logits_MK, present_K), graph)
    return present_K, shares_K


def without_absent(logits_MK: Tensor, present_K: Tensor) -> Tensor:
    """The same logits, with no probability left for classes that are not present."""
    return logits_MK.masked_fill(~present_K.to(logits_MK.device), -torch.inf)


def class_weights(present_K: Tensor, shares_K: Tensor) -> Tensor:
    """Weights_K of the source classes: 0 where absent, and 1 in the mean of those that are present.

    In proportion to the share up to the typical one, equal beyond: a class that takes many images, rightly or not,
    does not drown the others.
    """
    capped_K = (shares_K / typical_share(shares_K)).clamp(max=1.0) * present_K
    return (capped_K / capped_K[present_K].mean()).float()
