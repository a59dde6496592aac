"""The class balance of the target (its prior), estimated without a target label.

Three estimators, all on a model that never trained on the target:

clusters  the shares of the classes among labels propagated over the target's features;
BBSE      black-box shift estimation (Lipton et al., ICML 2018): q with C q = mu, where C_jk is how often class k is
          predicted as j on the held-out source and mu how often j is predicted on the target;
MLLS      maximum likelihood label shift (Saerens et al., 2002; Alexandari et al., ICML 2020): EM on calibrated
          probabilities, q_k <- mean_m p_mk q_k / s_k (normalised over k), s the source's prior.

BBSE and MLLS are right where only the balance differs. Here the images differ too, and a model errs on the target in
ways that the source does not show: on Office-31 with a long tail, with half of the classes and as it is, the mean error
of a class was 1.3 points by clusters, 1.6 by BBSE, 2.1 by MLLS. So the clusters' shares are the estimate.

The interval of a class reaches from the images that model, k-means and propagation all give it to those that any of
them does, widened by a bootstrap over the images. Of the true shares it held 95 in 100 where all classes were present
and as many images of each, 87 under a long tail, 64 where half of the classes were missing.

Shapes: N held-out source images, M target images, K classes, R resamplings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy.optimize import nnls
from torch import Tensor
from torch.nn.functional import one_hot

from pmtrans.pseudo_labels import kmeans_pseudo_labels, propagated_probabilities
from pmtrans.selection.calibration import fit_temperature
from pmtrans.selection.evidence import Evidence, evenly

LEVEL = 0.9  # of the intervals
RESAMPLINGS = 100
MOST_CLASSES = 128  # for BBSE: a confusion matrix of more classes has too few images in each row
MOST_IMAGES = 10_000  # of the target, evenly taken: neighbours of each among all others take their square
EM_STEPS = 200
SETTLED = 1e-7  # largest change of a share at which EM stops


@dataclass(frozen=True)
class TargetPrior:
    """Shares_K of the target's classes with intervals; ``bbse_K`` is None with too many classes."""

    shares_K: Tensor
    low_K: Tensor
    high_K: Tensor
    bbse_K: Tensor | None
    mlls_K: Tensor

    def as_json(self, classes: Sequence[str]) -> dict[str, Any]:
        """Intervals and the other two estimators, for ``summary.json``; classes by name."""
        by_name = {"low": self.low_K, "high": self.high_K, "bbse": self.bbse_K, "mlls": self.mlls_K}
        named = {key: None if values is None else named_shares(values, classes) for key, values in by_name.items()}
        return {"level": LEVEL, **named}


def named_shares(shares_K: Tensor, classes: Sequence[str]) -> dict[str, float]:
    """Class name to share, rounded to six decimals."""
    return {name: round(share, 6) for name, share in zip(classes, shares_K.tolist(), strict=True)}


def estimate_prior(evidence: Evidence, learned_K: Tensor | None = None) -> TargetPrior:
    """The target's balance as a model shows it that never trained on the target.

    ``learned_K``: the balance that its training saw, where it is not that of the held-out source.
    """
    evidence = for_shares(evidence)
    classes, features_MD, logits_MK = evidence.classes, evidence.target_features_MD, evidence.target_logits_MK
    near_M = propagated_probabilities(features_MD, logits_MK.softmax(1)).argmax(1)
    clusters_M = kmeans_pseudo_labels(features_MD, logits_MK=logits_MK)
    predicted_M = logits_MK.argmax(1)
    low_K, high_K = share_intervals(torch.stack([near_M, clusters_M, predicted_M]), classes)

    bbse_K = None
    if classes <= MOST_CLASSES:
        confusion_KK = confusion_counts(evidence.source_predictions_N(), evidence.source_labels_N, classes)
        bbse_K = black_box_shift(confusion_KK, torch.bincount(predicted_M, minlength=classes).double())
    temperature = fit_temperature(evidence.source_logits_NK, evidence.source_labels_N)
    source_K = source_prior(evidence.source_labels_N, classes) if learned_K is None else learned_K
    mlls_K = likelihood_shift((logits_MK.double() / temperature).softmax(1), source_K)
    shares_K = torch.bincount(near_M, minlength=classes).double() / len(near_M)
    return TargetPrior(shares_K, low_K, high_K, bbse_K, mlls_K)


def for_shares(evidence: Evidence) -> Evidence:
    """This evidence, or that of an even sample of the target where it is large."""
    evidence = evidence.sampled()
    return evidence.of_target(evenly(len(evidence.target_logits_MK), MOST_IMAGES))


def share_intervals(labels_LM: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """(low_K, high_K): the share of images that all L labellings give a class, and that any does, by bootstrap."""
    given_LMK = one_hot(labels_LM, classes).bool()
    images = labels_LM.shape[1]
    generator = torch.Generator().manual_seed(0)
    drawn_RM = torch.randint(images, (RESAMPLINGS, images), generator=generator)
    weights_RM = torch.zeros(RESAMPLINGS, images).scatter_add_(1, drawn_RM, torch.ones(RESAMPLINGS, images)) / images
    outside = (1 - LEVEL) / 2
    low_K = (weights_RM @ given_LMK.all(0).float()).quantile(outside, 0)
    high_K = (weights_RM @ given_LMK.any(0).float()).quantile(1 - outside, 0)
    return low_K.double(), high_K.double()


def source_prior(labels_N: Tensor, classes: int) -> Tensor:
    """Shares_K of the source's classes, one image added to each: a class that is rare is not impossible."""
    counts_K = torch.bincount(labels_N, minlength=classes).double() + 1
    return counts_K / counts_K.sum()


def confusion_counts(predicted_N: Tensor, labels_N: Tensor, classes: int) -> Tensor:
    """Counts_KK of (predicted, true): a column per true class."""
    pairs_N = predicted_N * classes + labels_N
    return torch.bincount(pairs_N, minlength=classes * classes).view(classes, classes).double()


def black_box_shift(confusion_KK: Tensor, predicted_K: Tensor) -> Tensor:
    """q_K >= 0 that sums to 1 and minimises |C q - mu|: BBSE from counts.

    Each class has one further image that is predicted rightly: a class without held-out images is taken at its word.
    """
    counted_KK = confusion_KK + torch.eye(len(confusion_KK), dtype=confusion_KK.dtype)
    rates_KK = counted_KK / counted_KK.sum(0)
    found, _ = nnls(rates_KK.numpy(), (predicted_K / predicted_K.sum()).numpy())
    shares_K = torch.from_numpy(found)
    return shares_K / shares_K.sum()


def likelihood_shift(probabilities_MK: Tensor, source_K: Tensor) -> Tensor:
    """q_K that maximises the likelihood of the target images, by EM: MLLS."""
    ratio_MK = probabilities_MK / source_K
    shares_K = source_K
    for _ in range(EM_STEPS):
        posterior_MK = ratio_MK * shares_K
        found_K = (posterior_MK / posterior_MK.sum(1, keepdim=True)).mean(0)
        settled = bool((found_K - shares_K).abs().max() < SETTLED)
        shares_K = found_K
        if settled:
            break
    return shares_K


def reweighted(probabilities_BK: Tensor, own_K: Tensor, wanted_K: Tensor) -> Tensor:
    """p_k wanted_k / own_k, normalised: what the model would say if classes came in the wanted shares."""
    ratio_K = (wanted_K / own_K).to(probabilities_BK)
    weighted_BK = probabilities_BK * ratio_K
    total_B1 = weighted_BK.sum(1, keepdim=True)
    return torch.where(
        total_B1 > 0, weighted_BK / total_B1.clamp_min(torch.finfo(total_B1.dtype).tiny), probabilities_BK
    )
