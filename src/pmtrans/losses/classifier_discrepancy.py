"""The discrepancy of two classifiers (Saito et al., Maximum Classifier Discrepancy, CVPR 2018)."""

from __future__ import annotations

from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def classifier_discrepancy(first_BK: Tensor, second_BK: Tensor) -> Tensor:
    """d(p1, p2) = mean over classes and images of |p1 - p2|, p the softmax of logits."""
    return (first_BK.softmax(1) - second_BK.softmax(1)).abs().mean()
