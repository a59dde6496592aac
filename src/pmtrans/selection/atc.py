"""Average thresholded confidence (Garg et al., Leveraging Unlabeled Data to Predict OOD Performance, ICLR 2022)."""

from __future__ import annotations

from torch import Tensor

from pmtrans.selection.evidence import shannon


def thresholded_confidence(source_scores_N: Tensor, accuracy: float, target_scores_M: Tensor) -> float:
    """Eq. 2: the share of target images above the source's threshold.

    The threshold is the score below which as many source images lie as are predicted wrong; the estimate is
    the share of target images at or above it. Scores: highest probability, or negative entropy.
    """
    ordered_N = source_scores_N.sort().values
    wrong = min(round((1.0 - accuracy) * len(ordered_N)), len(ordered_N) - 1)
    return (target_scores_M >= ordered_N[wrong]).double().mean().item()


def negative_entropy(probabilities_MK: Tensor) -> Tensor:
    """The second score of ATC, one number per image."""
    return -shannon(probabilities_MK)
