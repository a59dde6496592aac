"""Soft neighbourhood density (Saito et al., Tune it the Right Way: Unsupervised Validation of Domain
Adaptation via Soft Neighborhood Density, ICCV 2021, Eq. 1 to 3).

Each target image spreads a softmax of temperature 0.05 over the others by the cosine of their
predictions; the entropy of that softmax is high where many others are equally near.
"""

from __future__ import annotations

import torch
from torch.nn.functional import normalize

from pmtrans.selection.evidence import Evidence

TEMPERATURE = 0.05  # the paper's, for all its experiments


def snd(evidence: Evidence, *, chunk: int = 512) -> float:
    """mean_i H(softmax_j!=i(cos(p_i, p_j) / 0.05)), in nats, at most log(M - 1); higher is better.

    Works on tiles of chunk x chunk: the M x M matrix never exists.
    """
    images = len(evidence.target_logits_MK)
    if images < 2:
        return 0.0
    directions_MK = normalize(evidence.target_logits_MK.float().softmax(1), dim=1)
    # A column of ones makes one product give both the normaliser and the weighted sum of neighbours.
    extended_ML = torch.cat([directions_MK, torch.ones(images, 1)], dim=1)
    sums_ML = torch.zeros(images, extended_ML.shape[1], dtype=torch.float64)

    starts = range(0, images, chunk)
    for i in starts:
        rows = slice(i, i + chunk)
        for j in starts[: i // chunk + 1]:
            columns = slice(j, j + chunk)
            # Cosines lie in [0, 1], so subtracting their largest possible value is safe for all rows at once.
            weights = directions_MK[rows] @ directions_MK[columns].T
            weights.sub_(1.0).div_(TEMPERATURE).exp_()
            if i == j:
                weights.fill_diagonal_(0.0)
            else:  # the matrix is symmetric: the tile serves its mirror image as well
                sums_ML[columns] += weights.T @ extended_ML[rows]
            sums_ML[rows] += weights @ extended_ML[columns]

    normaliser_M = sums_ML[:, -1]
    mean_cosine_M = (sums_ML[:, :-1] * directions_MK).sum(1) / normaliser_M
    return (normaliser_M.log() - (mean_cosine_M - 1.0) / TEMPERATURE).mean().item()
