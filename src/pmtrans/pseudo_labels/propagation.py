"""Pseudo labels of the target by label propagation (Zhou et al., Learning with Local and Global Consistency, 2003).

A prediction spreads over the graph of nearest neighbours, so that images of one cluster agree, whatever its shape;
k-means asks for round ones. Neighbours are found and labels spread a chunk of rows at a time: no M x M matrix.

Shapes: C rows of a chunk, M images, K classes, F feature width, J neighbours.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.pseudo_labels.kmeans import CHUNK, slices

NEIGHBOURS = 10
SPREAD = 0.9  # what an image takes from its neighbours; the rest is its own prediction
ROUNDS = 30  # 0.9^30 = 0.04 is what is left of the start
COSINES = 2**28  # that are known at a time: 1 GB
POWER = 3  # of the cosines: near neighbours count more

Graph = tuple[Tensor, Tensor]  # index_MJ of neighbours, and their weights_MJ


@torch.no_grad()
def propagated_probabilities(
    features_MF: Tensor,
    probabilities_MK: Tensor,
    chunk: int = CHUNK // 8,
    graph: Graph | None = None,
    seeds_M: Tensor | None = None,
) -> Tensor:
    """q_MK: q <- 0.9 W q + 0.1 p, where the rows of W weigh the nearest neighbours by cosine^3 and sum to 1.

    Each class is then divided by its mass and each row normalised, so that a large class does not swallow its
    neighbours. ``graph``: what ``nearest_neighbours`` gives, where it is known already. ``seeds_M``: known labels, -1
    elsewhere; their rows are certain throughout, and spread so.
    """
    if len(features_MF) < 2:
        return _clamped(probabilities_MK.float(), seeds_M)
    index_MJ, weight_MJ = nearest_neighbours(features_MF, chunk) if graph is None else graph
    start_MK = _clamped(probabilities_MK.float(), seeds_M)
    spread_MK = start_MK
    for _ in range(ROUNDS):
        taken_MK = torch.empty_like(start_MK)
        for piece in slices(len(start_MK), chunk):
            taken_MK[piece] = torch.einsum("cj,cjk->ck", weight_MJ[piece], spread_MK[index_MJ[piece]])
        spread_MK = _clamped(SPREAD * taken_MK + (1 - SPREAD) * start_MK, seeds_M)
    balanced_MK = spread_MK / spread_MK.sum(0).clamp_min(1e-12)
    return _clamped(balanced_MK / balanced_MK.sum(1, keepdim=True).clamp_min(1e-12), seeds_M)


def _clamped(probabilities_MK: Tensor, seeds_M: Tensor | None) -> Tensor:
    """Rows of known label are 1 there and 0 elsewhere (Zhu and Ghahramani, 2002)."""
    if seeds_M is None:
        return probabilities_MK
    known_MK = F.one_hot(seeds_M.clamp_min(0), probabilities_MK.shape[1]).to(probabilities_MK.dtype)
    return torch.where((seeds_M >= 0)[:, None], known_MK, probabilities_MK)


def nearest_neighbours(features_MF: Tensor, chunk: int = CHUNK // 8) -> Graph:
    """Index_MJ of the nearest other images by cosine, and their weights_MJ, which sum to 1 in each row."""
    unit_MF = F.normalize(features_MF.float(), dim=1)
    neighbours = min(NEIGHBOURS, len(unit_MF) - 1)
    chunk = max(1, min(chunk, COSINES // len(unit_MF)))
    rows = []
    for piece in slices(len(unit_MF), chunk):
        cosine_CM = unit_MF[piece] @ unit_MF.T
        itself_C = torch.arange(piece.start, piece.stop, device=unit_MF.device)
        cosine_CM.scatter_(1, itself_C[:, None], -2.0)
        rows.append(cosine_CM.topk(neighbours, dim=1))
    cosine_MJ = torch.cat([row.values for row in rows]).clamp_min(1e-6).pow(POWER)
    return torch.cat([row.indices for row in rows]), cosine_MJ / cosine_MJ.sum(1, keepdim=True)
