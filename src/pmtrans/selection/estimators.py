"""Estimators of accuracy from the confidence of a model that was not trained on the target.

Each maps predictions on held-out source images (where accuracy is known) and on target images to an
accuracy in [0, 1]. All probabilities are those of the source-calibrated temperature.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pmtrans.selection.evidence import MANY_CLASSES, shannon
from pmtrans.selection.validators.bnm import nuclear_norm


def average_confidence(target_MK: Tensor) -> float:
    """mean_i max_k p_ik (Hendrycks and Gimpel, ICLR 2017; calibrated: Guo et al., ICML 2017)."""
    return target_MK.max(1).values.mean().item()


def thresholded_confidence(source_scores_N: Tensor, accuracy: float, target_scores_M: Tensor) -> float:
    """ATC (Garg et al., Leveraging Unlabeled Data to Predict OOD Performance, ICLR 2022, Eq. 2).

    The threshold is the score below which as many source images lie as are predicted wrong; the estimate is
    the share of target images at or above it. Scores: highest probability, or negative entropy.
    """
    ordered_N = source_scores_N.sort().values
    wrong = min(round((1.0 - accuracy) * len(ordered_N)), len(ordered_N) - 1)
    return (target_scores_M >= ordered_N[wrong]).double().mean().item()


def negative_entropy(probabilities_MK: Tensor) -> Tensor:
    """The second score of ATC, one number per image."""
    return -shannon(probabilities_MK)


def scaled_nuclear_norm(probabilities_MK: Tensor) -> float:
    """||P||_* / sqrt(M min(M, K)) (Deng et al., Confidence and Dispersity Speak, ICML 2023)."""
    p = probabilities_MK
    return nuclear_norm(p @ p.T if p.shape[1] > max(MANY_CLASSES, len(p)) else p.T @ p, len(p))


def scaled_fourth_norm(probabilities_MK: Tensor) -> float:
    """(mean_ik p_ik^4)^(1/4) (Xie et al., MANO, NeurIPS 2024, Eq. 5, p = 4, softmax as the normalisation)."""
    return math.pow(probabilities_MK.pow(4).mean().item(), 0.25)


def on_the_line(source_norm: float, accuracy: float, target_norm: float, classes: int) -> float:
    """Read an accuracy off the line through (uniform predictions, chance) and (source norm, source accuracy).

    Both norms are 1 / K for uniform predictions, whose accuracy is 1 / K as well.
    """
    chance = 1.0 / classes
    if source_norm <= chance:
        return chance
    share = (target_norm - chance) / (source_norm - chance)
    return min(max(chance + (accuracy - chance) * share, 0.0), 1.0)


def agreement_on_the_line(accuracy: float, source_agreement: float, target_agreement: float) -> float:
    """Baek et al., Agreement-on-the-Line, NeurIPS 2022, Eq. 3, for one pair of models (slope one).

    On a probit scale, accuracy falls from source to target as much as the agreement of two models does.
    """
    probit = torch.special.ndtri(torch.tensor([accuracy, target_agreement, source_agreement], dtype=torch.float64))
    return float(torch.special.ndtr(probit[0] + probit[1] - probit[2]))


def smoothed_share(count: float, images: int) -> float:
    """A share kept off 0 and 1 (half an image each way), where the probit is infinite."""
    return (count + 0.5) / (images + 1.0)
