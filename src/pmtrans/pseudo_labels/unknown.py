"""Which target images belong to no known class, without a label: a score of strangeness, and where to cut it.

An image is strange if no class has a high logit for it, and if it is far from where confident images of the target
are; its neighbours have a say, as images of a new class lie together. Otsu's threshold (1979) cuts the scores where
the two groups differ most. On Office-31 with 10 or 20 of 31 classes known, this was ahead of entropy, of the softmax's
maximum and of the distance to source centres, in the harmonic mean by 5 to 12 points (docs/decisions.md).

Shapes: M images, K classes, F feature width, J neighbours.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.machine import fallback_device
from pmtrans.pseudo_labels.propagation import nearest_neighbours


def strangeness(logits_MK: Tensor) -> Tensor:
    """-max_k logit_k: of a single image, by its logits alone. The softmax would forget how high they are."""
    return -logits_MK.max(-1).values


@torch.no_grad()
def unknown_scores(features_MF: Tensor, logits_MK: Tensor) -> Tensor:
    """Scores_M of a whole target, the larger the stranger.

    The strangeness and the distance 1 - cos to the nearest centre of the less strange half, each standardised, added,
    and averaged with the mean over the nearest neighbours.
    """
    strange_M = strangeness(logits_MK.float())
    familiar_M = strange_M <= strange_M.median()
    unit_MF = F.normalize(features_MF.float(), dim=1)
    members_MK = F.one_hot(logits_MK.argmax(1), logits_MK.shape[1]).float() * familiar_M[:, None]
    centres_KF = F.normalize(members_MK.T @ unit_MF, dim=1)
    empty_K = members_MK.sum(0) == 0
    distance_M = 1 - (unit_MF @ centres_KF.T).masked_fill(empty_K, -torch.inf).max(1).values
    score_M = _standardised(strange_M) + _standardised(distance_M)
    if len(score_M) < 2:
        return score_M
    index_MJ, _ = nearest_neighbours(features_MF)
    return (score_M + score_M[index_MJ].mean(1)) / 2


def otsu_threshold(scores_M: Tensor) -> float:
    """Between the two neighbouring scores where the variance between the groups, n_0 n_1 (m_0 - m_1)^2, is largest."""
    sorted_M = scores_M.to(fallback_device(scores_M.device), torch.float64).sort().values
    if len(sorted_M) < 2:
        return float("inf")
    below = torch.arange(1, len(sorted_M), dtype=torch.float64, device=sorted_M.device)
    sums = sorted_M.cumsum(0)
    above = len(sorted_M) - below
    between = below * above * (sums[:-1] / below - (sums[-1] - sums[:-1]) / above).square()
    cut = int(between.argmax())
    return float((sorted_M[cut] + sorted_M[cut + 1]) / 2)


def _standardised(values_M: Tensor) -> Tensor:
    return (values_M - values_M.mean()) / values_M.std(unbiased=False).clamp_min(1e-12)
