"""Which target images to label: the most informative ones, and a random sample.

Half of the images are CHOSEN by the rule below: uncertain, different from each other, from all predicted classes. They
show where the model fails, and their accuracy is far below the target's. The other half is DRAWN at random from the
remaining images. A chosen image has weight 1, a drawn one (images - chosen) / drawn: the weighted mean is an unbiased
estimate of the accuracy on the whole target (Horvitz and Thompson, 1952), and its interval comes from the drawn half
alone (``sampled_accuracy.py``). Each image carries the probability that the model is right, and the mean of these over
the images it represents, for prediction-powered inference.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pmtrans.data.sampling import random_seed
from pmtrans.selection.calibration import cautious_temperature
from pmtrans.selection.evidence import Evidence, shannon


@dataclass(frozen=True)
class Pick:
    """One image to label: its position in the target, why it was picked, and how many images it represents.

    ``probability``: that the model is right on it; ``mean_probability``: the mean over the images it represents.
    """

    index: int
    why: Literal["chosen", "drawn"]
    weight: float
    probability: float
    mean_probability: float


def pick_images(evidence: Evidence, count: int, seed: int, labelled: Collection[int] = ()) -> list[Pick]:
    """``count`` images, half of them chosen and half drawn; all of a target that has no more than ``count``.

    ``labelled``: images whose labels the run was given; they are not asked for again, and no weight counts them.
    """
    if labelled:
        known = set(labelled)
        left = [place for place in range(len(evidence.target_logits_MK)) if place not in known]
        rows = torch.tensor(left, dtype=torch.long)
        kept = replace(
            evidence,
            target_features_MD=evidence.target_features_MD[rows],
            target_logits_MK=evidence.target_logits_MK[rows],
        )
        return [replace(pick, index=left[pick.index]) for pick in pick_images(kept, count, seed)]
    images = len(evidence.target_logits_MK)
    temperature = cautious_temperature(evidence.source_logits_NK, evidence.source_labels_N)
    probabilities_MK = (evidence.target_logits_MK.double() / temperature).softmax(1)
    right_M = probabilities_MK.max(1).values

    def pick_chosen(index: int) -> Pick:
        return Pick(index, "chosen", 1.0, right_M[index].item(), right_M[index].item())

    if count >= images:
        return [pick_chosen(index) for index in range(images)]
    entropy_M = shannon(probabilities_MK)
    chosen = most_informative(entropy_M, evidence.target_predictions_M(), evidence.target_features_MD, count // 2)
    remaining = np.setdiff1d(np.arange(images), chosen)
    drawn = np.random.default_rng(random_seed(seed, "label-these")).choice(
        remaining, count - len(chosen), replace=False
    )
    weight, mean = len(remaining) / len(drawn), right_M[torch.from_numpy(remaining)].mean().item()
    return [
        *(pick_chosen(index) for index in chosen),
        *(Pick(int(index), "drawn", weight, right_M[index].item(), mean) for index in np.sort(drawn)),
    ]


def most_informative(entropy_M: Tensor, predicted_M: Tensor, features_MD: Tensor, count: int) -> list[int]:
    """Greedy: the predicted classes take turns, and each picks its image of greatest entropy x distance.

    The distance is the cosine distance to the nearest image picked so far, of any class (k-centre; Sener and
    Savarese, ICLR 2018): two images that look the same to the model are redundant. The most uncertain
    class goes first, so that a few images are spent on it.
    """
    unit_MD = torch.nn.functional.normalize(features_MD.float(), dim=1)
    classes = predicted_M.unique().tolist()
    turns = sorted(classes, key=lambda k: -entropy_M[predicted_M == k].mean().item())
    distance_M = torch.ones(len(entropy_M), dtype=torch.float64)
    free_M = torch.ones(len(entropy_M), dtype=torch.bool)
    picked: list[int] = []
    while len(picked) < min(count, len(entropy_M)):
        for k in turns:
            mine_M = free_M & (predicted_M == k)
            if len(picked) == count or not mine_M.any():
                continue
            score_M = (entropy_M + 1e-9) * (distance_M + 1e-9)  # a redundant image is still better than none
            index = int(score_M.masked_fill(~mine_M, -1.0).argmax())
            picked.append(index)
            free_M[index] = False
            distance_M = torch.minimum(distance_M, (1 - unit_MD @ unit_MD[index]).clamp(0, 1).double())
    return picked
