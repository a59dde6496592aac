"""Signs that adaptation is collapsing: classes that die out, one class that takes over.

Self-training rewards its own mistakes: a class that wins an image pulls its neighbours. It is seen in the
predictions long before a loss shows it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pmtrans.selection.evidence import shannon

FEW_CLASSES = 1 / 3  # of the classes that could be predicted
TAKEN_OVER = 0.9  # of the images
DYING = 0.1  # of the images it had before
LEAST_IMAGES = 3  # a class with fewer images before comes and goes by chance
MOST_NAMED = 10  # dying classes that are named, those with the most images before


def predicted_counts(scores_MK: Tensor) -> Tensor:
    """How many images each of the K classes is predicted for; scores are probabilities or logits."""
    return torch.bincount(scores_MK.argmax(1), minlength=scores_MK.shape[1])


def dying_classes(counts_K: Tensor, previous_counts_K: Tensor) -> Tensor:
    """Which classes keep at most a tenth of the images they had."""
    return (previous_counts_K >= LEAST_IMAGES) & (counts_K <= DYING * previous_counts_K)


def share_of_dying(scores_MK: Tensor, previous_MK: Tensor) -> float:
    """The share of images that belonged, before, to a class that is now dying: how grave a collapse is."""
    before_K = predicted_counts(previous_MK)
    dying_K = dying_classes(predicted_counts(scores_MK), before_K)
    return before_K[dying_K].sum().item() / len(previous_MK)


def without_classes(logits_MK: Tensor, absent_K: Tensor | None) -> Tensor:
    """The same logits with classes that the target is taken not to have below all others; None: all of them."""
    if absent_K is None:
        return logits_MK
    lowest = logits_MK.min() - 100  # finite, and a probability of 0 beside any other class
    return torch.where(absent_K, lowest, logits_MK)


def collapse_signs(
    target_probabilities_MK: Tensor, previous: Tensor | None = None, *, classes: Sequence[str] | None = None
) -> list[str]:
    """One line for each sign of collapse, none if all is well.

    ``previous`` holds the predictions of the same images by the model to compare with (before adaptation, or
    an earlier evaluation). What was so already then is a property of the target, and is not reported.
    """
    images, width = target_probabilities_MK.shape
    names = list(classes) if classes is not None else [str(c) for c in range(width)]
    counts_K = predicted_counts(target_probabilities_MK)
    before_K = predicted_counts(previous) if previous is not None else torch.zeros_like(counts_K)
    possible = min(width, images)
    signs = []

    predicted, predicted_before = int((counts_K > 0).sum()), int((before_K > 0).sum())
    if predicted < FEW_CLASSES * possible and (previous is None or predicted < predicted_before / 2):
        was = f" ({predicted_before} before)" if previous is not None else ""
        signs.append(f"Only {predicted} of {width} classes are predicted{was}.")

    largest = int(counts_K.argmax())
    if possible > 1 and counts_K[largest] >= TAKEN_OVER * images > before_K[largest]:
        signs.append(f"Class {names[largest]} takes {counts_K[largest] / images:.0%} of the images.")

    if previous is not None:
        mean_K, mean_before_K = target_probabilities_MK.double().mean(0), previous.double().mean(0)
        effective, effective_before = (shannon(mean).exp().item() for mean in (mean_K, mean_before_K))
        if effective < effective_before / 2:
            signs.append(f"Predictions spread over {effective:.1f} classes in effect, {effective_before:.1f} before.")
        dying = dying_classes(counts_K, before_K).nonzero().flatten().tolist()
        if len(dying) == 1:
            (c,) = dying
            signs.append(
                f"Class {names[c]} is dying: {before_K[c]} images before, {counts_K[c]} now "
                f"(mean probability {mean_before_K[c]:.3f} before, {mean_K[c]:.3f} now)."
            )
        elif dying:
            dying.sort(key=lambda c: -int(before_K[c]))
            named = [f"{names[c]} ({before_K[c]} images before, {counts_K[c]} now)" for c in dying[:MOST_NAMED]]
            more = f" and {len(dying) - MOST_NAMED} more" if len(dying) > MOST_NAMED else ""
            signs.append(f"Classes are dying: {', '.join(named)}{more}.")
    return signs
