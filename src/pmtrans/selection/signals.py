"""What the outputs of one or two models show of their accuracy, before anything fitted is applied to it.

Everything here is a function of features, logits and source labels. What it means for the accuracy is in
``assessment.py``, with constants from tasks whose truth is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pmtrans.pseudo_labels import cluster_agreement
from pmtrans.selection.agreement import agreement, class_mean_agreement
from pmtrans.selection.arbitration import Arbitration, arbitrate
from pmtrans.selection.atc import negative_entropy, thresholded_confidence
from pmtrans.selection.calibration import cautious_temperature
from pmtrans.selection.collapse import TAKEN_OVER, share_of_dying, without_classes
from pmtrans.selection.disagreement_discrepancy import accuracy_floor
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.optimal_transport import transported_confidence

DELTA = 0.05  # chance that the lower end by disagreement discrepancy is too high, if its assumption holds


@dataclass(frozen=True)
class ModelSignals:
    """One model that was not trained on the target. ``parts``: estimators, each in [0, 1].

    ``balance``: sum_k min(share of class k in the predictions, in the held-out source), the most that can be right of
    a target with the class balance of the source, where nearly all predictions are of one class; None elsewhere.
    """

    parts: dict[str, float]
    floor: float
    images: int
    classes: int
    balance: float | None = None


@dataclass(frozen=True)
class PairSignals:
    """An earlier and a later model on the same images; ``gain`` is what arbitration finds, in [-1, 1]."""

    gain: float
    better: int
    worse: int
    disputed: float  # share of images on which the two differ
    dead: float  # share of images of classes that died out
    source_drop: float  # of accuracy on the held-out source
    images: int
    classes: int


def read_model(evidence: Evidence, neutral: Evidence | None = None, other: Evidence | None = None) -> ModelSignals:
    """``neutral``: whose features no training has bent, by default its own. ``other``: another source model."""
    neutral = (evidence if neutral is None else neutral).sampled()
    evidence, other = evidence.sampled(), None if other is None else other.sampled()
    temperature = cautious_temperature(evidence.source_logits_NK, evidence.source_labels_N)
    source_NK, target_MK = (
        (logits.double() / temperature).softmax(1) for logits in (evidence.source_logits_NK, evidence.target_logits_MK)
    )
    accuracy = (evidence.source_predictions_N() == evidence.source_labels_N).double().mean().item()
    predicted_M = evidence.target_predictions_M()
    parts = {
        "average_confidence": target_MK.max(1).values.mean().item(),
        "atc_confidence": thresholded_confidence(source_NK.max(1).values, accuracy, target_MK.max(1).values),
        "atc_entropy": thresholded_confidence(negative_entropy(source_NK), accuracy, negative_entropy(target_MK)),
        "optimal_transport": transported_confidence(target_MK, evidence.source_labels_N),
        "clusters": float(cluster_agreement(neutral.target_features_MD, evidence.target_logits_MK)),
        "own_clusters": float(cluster_agreement(evidence.target_features_MD, evidence.target_logits_MK)),
        "class_means": class_mean_agreement(evidence.target_features_MD, predicted_M, evidence.classes),
    }
    if other is not None:
        parts["agreement"] = agreement(predicted_M, other.target_predictions_M())
    floor, balance = accuracy_floor(evidence, DELTA), one_class_balance(predicted_M, evidence)
    return ModelSignals(parts, floor, len(predicted_M), evidence.classes, balance)


def one_class_balance(predicted_M: Tensor, evidence: Evidence) -> float | None:
    """``ModelSignals.balance``."""
    classes = evidence.classes
    target_K, source_K = (
        torch.bincount(labels, minlength=classes).double() / len(labels)
        for labels in (predicted_M, evidence.source_labels_N)
    )
    return target_K.minimum(source_K).sum().item() if classes > 1 and target_K.max() >= TAKEN_OVER else None


def read_pair(
    earlier: Evidence, later: Evidence, judged: Arbitration | None = None, absent_K: Tensor | None = None
) -> PairSignals:
    """Compare two models; ``judged``: their arbitration, by default on the features of ``earlier``.

    ``absent_K``: classes that the target is taken not to have: that they die out is no collapse, and their part of the
    source is not missed.
    """
    earlier, later = earlier.without_source_of(absent_K), later.without_source_of(absent_K)
    judged = arbitrate(earlier, later) if judged is None else judged
    earlier, later = earlier.sampled(), later.sampled()
    before, now = (
        (model.source_predictions_N() == model.source_labels_N).double().mean().item() for model in (earlier, later)
    )
    return PairSignals(
        gain=judged.gain,
        better=judged.for_adapted,
        worse=judged.for_baseline,
        disputed=1 - agreement(earlier.target_predictions_M(), later.target_predictions_M()),
        dead=share_of_dying(later.target_logits_MK, without_classes(earlier.target_logits_MK, absent_K)),
        source_drop=before - now,
        images=len(later.target_logits_MK),
        classes=later.classes,
    )
