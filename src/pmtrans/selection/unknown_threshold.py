"""From which strangeness on the answer of a model is ``unknown``: set without labels, moved by a few.

The score of an image is sigma((strangeness - threshold) / scale), above one half where it belongs to no known class.
It is a function of the image's own logits: a single image has no neighbours to ask, and an exported graph carries it.

Without labels the threshold is Otsu's on the target. The scale is that of two normal groups of one variance, whose
posterior is a logistic function: variance within the groups / difference of their means.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pmtrans.pseudo_labels import otsu_threshold, strangeness

TRUST = 10  # labelled images of known and of unknown classes each, at which they count as much as all unlabelled ones


@dataclass(frozen=True)
class UnknownThreshold:
    """Strangeness at which the score is one half, and how fast it rises there."""

    threshold: float
    scale: float

    def scores(self, logits_BK: Tensor) -> Tensor:
        """Scores_B in [0, 1]: that an image belongs to no known class."""
        return ((strangeness(logits_BK.float()) - self.threshold) / self.scale).sigmoid()

    def share(self, logits_MK: Tensor) -> float:
        """Of the images, those that are called unknown."""
        return (self.scores(logits_MK) > 0.5).double().mean().item()


def fit_unknown(logits_MK: Tensor) -> UnknownThreshold:
    """Threshold and scale on the logits of unlabelled target images."""
    strange_M = strangeness(logits_MK.double())
    threshold = otsu_threshold(strange_M)
    low, high = strange_M[strange_M <= threshold], strange_M[strange_M > threshold]
    if not len(high):  # one image, or equal scores: nothing stands out
        return UnknownThreshold(strange_M.max().item() + 1.0, 1.0)
    within = (low.var(unbiased=False) * len(low) + high.var(unbiased=False) * len(high)) / len(strange_M)
    scale = within / (high.mean() - low.mean())
    return UnknownThreshold(threshold, max(scale.item(), 1e-3))


def calibrate_unknown(start: UnknownThreshold, logits_BK: Tensor, labels_B: Tensor) -> UnknownThreshold:
    """``start`` moved by a few labelled images, whose label is -1 where their class is unknown.

    The threshold with the best harmonic mean on them, and ``start``'s, weighted by how many there are of the rarer
    kind. Images of one kind alone say nothing about where the two part.
    """
    fewest = int(min((labels_B < 0).sum(), (labels_B >= 0).sum()))
    if fewest == 0:
        return start
    trust = fewest / (fewest + TRUST)
    threshold = (1 - trust) * start.threshold + trust * best_threshold(logits_BK, labels_B)
    return UnknownThreshold(threshold, start.scale)


def best_threshold(logits_BK: Tensor, labels_B: Tensor) -> float:
    """Of all cuts between two scores the one with the best harmonic mean; of several, the middle one."""
    strange_B = strangeness(logits_BK.double())
    ordered = strange_B.unique()
    cuts = (ordered[1:] + ordered[:-1]) / 2 if len(ordered) > 1 else ordered
    predicted_B = logits_BK.argmax(1)
    found = torch.tensor([harmonic_mean(predicted_B, strange_B > cut, labels_B)[2] for cut in cuts])
    best = cuts[found == found.max()]
    return float(best[len(best) // 2])


def harmonic_mean(predicted_B: Tensor, called_unknown_B: Tensor, labels_B: Tensor) -> tuple[float, float, float]:
    """(known accuracy, unknown recall, 2 k u / (k + u)); labels of -1 are unknown. A kind without images has 0.

    A known image counts as right where its class is the answer: called unknown, it is wrong.
    """
    unknown_B = labels_B < 0
    right_B = (predicted_B == labels_B) & ~called_unknown_B
    known = right_B[~unknown_B].double().mean().item() if (~unknown_B).any() else 0.0
    recall = called_unknown_B[unknown_B].double().mean().item() if unknown_B.any() else 0.0
    return known, recall, 2 * known * recall / (known + recall) if known + recall else 0.0
