"""Confidence optimal transport: average confidence, if the classes were as frequent as in the source.

Lu et al., Characterizing Out-of-Distribution Error via Optimal Transport, NeurIPS 2023, Sec. 3 (COT). The predictions
of the target are transported to the one-hot labels of the source at the cost |p - y|_1 / 2 = 1 - p_y. The estimate of
the error is the cost of the cheapest plan, so the accuracy is the mean p of the class to which each image is sent. An
overconfident model that predicts some classes too often pays for it, which average confidence does not notice.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

MOST = 1_000  # images: the assignment is exact, and takes cubic time


def transported_confidence(target_MK: Tensor, source_labels_N: Tensor, *, seed: int = 0) -> float:
    """1 - COT, in [0, 1]: the greatest mean probability of an assignment with the class shares of the source."""
    return transported_confidences(target_MK, source_labels_N, seed=seed).mean().item()


def transported_confidences(target_MK: Tensor, source_labels_N: Tensor, *, seed: int = 0) -> Tensor:
    """The probability of the class to which each image is sent, for at most ``MOST`` images drawn at random."""
    images, classes = target_MK.shape
    if images > MOST:
        drawn = torch.randperm(images, generator=torch.Generator().manual_seed(seed))[:MOST]
        target_MK = target_MK[drawn.sort().values]
    shares_K = torch.bincount(source_labels_N, minlength=classes).double() / len(source_labels_N)
    places = np.repeat(np.arange(classes), quotas(shares_K.tolist(), len(target_MK)))
    gain_MM = target_MK.double().numpy()[:, places]
    rows, columns = linear_sum_assignment(gain_MM, maximize=True)
    return torch.from_numpy(gain_MM[rows, columns])


def quotas(shares: list[float], images: int) -> list[int]:
    """Whole numbers of images with these shares: rounded down, and the largest remainders get one more."""
    exact = [share * images for share in shares]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(shares)), key=lambda k: (counts[k] - exact[k], k))
    for k in by_remainder[: images - sum(counts)]:
        counts[k] += 1
    return counts
