"""Agreement as a sign of accuracy: of a model with the class means of the target, and of two models with each other.

Two classifiers that err differently agree as often as each is right (generalised disagreement equality: Jiang et al.,
Assessing Generalization of SGD via Disagreement, ICLR 2022), and over models and domains both rise and fall on one line
(Baek et al., Agreement-on-the-Line, NeurIPS 2022). One of the two may be made from the target itself: its clusters.
Nothing here reads a confidence or the held-out source, which is the easier, the more it repeats the training images.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from pmtrans.selection.evidence import CHUNK


def class_mean_agreement(features_MD: Tensor, predicted_M: Tensor, classes: int) -> float:
    """The share of images whose nearest class mean, by cosine, is that of the predicted class.

    A mean is over the unit vectors of all other images of that prediction: an image that vouches for itself would be
    right in every small class.
    """
    sums_KD = torch.zeros(classes, features_MD.shape[1], dtype=torch.float64)
    for rows in _chunks(len(predicted_M)):
        sums_KD.index_add_(0, predicted_M[rows], normalize(features_MD[rows].double(), dim=1))
    counts_K, squares_K = torch.bincount(predicted_M, minlength=classes), sums_KD.square().sum(1)
    same = 0
    for rows in _chunks(len(predicted_M)):
        own_RK = one_hot(predicted_M[rows], classes).double()
        dots_RK = normalize(features_MD[rows].double(), dim=1) @ sums_KD.T
        lengths_RK = (squares_K - 2 * own_RK * dots_RK + own_RK).clamp(min=1e-12).sqrt()
        cosines_RK = ((dots_RK - own_RK) / lengths_RK).masked_fill(counts_K - own_RK < 0.5, -2.0)
        same += int((cosines_RK.argmax(1) == predicted_M[rows]).sum())
    return same / len(predicted_M)


def _chunks(rows: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, rows, CHUNK)]


def agreement(predicted_M: Tensor, others_M: Tensor) -> float:
    """The share of images on which two models say the same."""
    return torch.eq(predicted_M, others_M).double().mean().item()
