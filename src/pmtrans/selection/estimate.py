"""An estimate of target accuracy with an interval, from no target label at all.

Confidence estimates accuracy well on a model that never trained on the target, and far too high on one that
did: self-training drives it to one, right or wrong. So each confidence estimator is read on the BASELINE,
and the change that arbitration finds (``arbitration.py``) is added to it. Agreement of the two models, which
needs no confidence, is one more estimator. Without a baseline the estimators are read on the model
itself: right for a source-only model, optimistic for an adapted one.

The point is the mean of the estimators. The interval is point +- z sqrt(sampling^2 + disagreement^2):
sampling is the bootstrap's standard deviation (target and hold-out images resampled), disagreement the
standard deviation of the estimators around their mean. A bias that all share is in neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist, fmean, pstdev, stdev

import torch
from torch import Tensor

from pmtrans.selection.arbitration import arbitrate
from pmtrans.selection.calibration import fit_temperature
from pmtrans.selection.estimators import (
    agreement_on_the_line,
    average_confidence,
    negative_entropy,
    on_the_line,
    scaled_fourth_norm,
    scaled_nuclear_norm,
    smoothed_share,
    thresholded_confidence,
)
from pmtrans.selection.evidence import MANY_CLASSES, Evidence

RESAMPLES = 100
FEWER_RESAMPLES = 20  # where there are many classes
LARGEST_RESAMPLE = 2_000  # m out of n bootstrap: deviations shrink by sqrt(m / n), the cost stays bounded


@dataclass(frozen=True)
class Estimate:
    """Target accuracy in [0, 1] with its interval; ``parts`` holds each estimator's own value."""

    accuracy: float
    low: float
    high: float
    parts: dict[str, float]


@dataclass(frozen=True)
class _Facts:
    """What the estimators need of each image, so that resampling images is an indexing."""

    source_NK: Tensor  # calibrated probabilities of the model that confidence is read on
    source_right_N: Tensor
    target_MK: Tensor
    change_M: Tensor  # arbitration: +1, 0, -1
    source_pair_N2: Tensor | None  # adapted model right? models agree?
    target_agree_M: Tensor | None

    def draw(self, source: Tensor, target: Tensor) -> _Facts:
        pair, agree = self.source_pair_N2, self.target_agree_M
        return _Facts(
            self.source_NK[source],
            self.source_right_N[source],
            self.target_MK[target],
            self.change_M[target],
            pair[source] if pair is not None else None,
            agree[target] if agree is not None else None,
        )


def estimate_accuracy(
    evidence: Evidence, baseline: Evidence | None = None, *, level: float = 0.9, seed: int = 0
) -> Estimate:
    """Estimate the target accuracy of the model of ``evidence``; ``baseline`` is the source-only model's."""
    resamples = RESAMPLES if evidence.classes <= MANY_CLASSES else FEWER_RESAMPLES
    facts = _gather(evidence.sampled(), baseline.sampled() if baseline is not None else None)
    parts = _estimates(facts)
    accuracy = fmean(parts.values())

    generator = torch.Generator().manual_seed(seed)
    sources, targets = len(facts.source_NK), len(facts.target_MK)
    drawn = min(targets, LARGEST_RESAMPLE)
    resampled = [
        fmean(
            _estimates(
                facts.draw(
                    torch.randint(sources, (sources,), generator=generator),
                    torch.randint(targets, (drawn,), generator=generator),
                )
            ).values()
        )
        for _ in range(resamples)
    ]
    sampling = pstdev(resampled) * (drawn / targets) ** 0.5
    half = NormalDist().inv_cdf(0.5 + level / 2) * (sampling**2 + stdev(parts.values()) ** 2) ** 0.5
    return Estimate(accuracy, max(accuracy - half, 0.0), min(accuracy + half, 1.0), parts)


def _gather(evidence: Evidence, baseline: Evidence | None) -> _Facts:
    read = baseline if baseline is not None else evidence
    temperature = fit_temperature(read.source_logits_NK, read.source_labels_N)
    source_NK, target_MK = (
        (logits.double() / temperature).softmax(1) for logits in (read.source_logits_NK, read.target_logits_MK)
    )
    right_N = (read.source_predictions_N() == read.source_labels_N).double()
    if baseline is None:
        return _Facts(source_NK, right_N, target_MK, torch.zeros(len(target_MK)), None, None)
    change_M = arbitrate(baseline, evidence).outcome_M.double()
    predictions_N = evidence.source_predictions_N()
    pair_N2 = torch.stack(
        [predictions_N == evidence.source_labels_N, predictions_N == baseline.source_predictions_N()], dim=1
    )
    agree_M = evidence.target_predictions_M() == baseline.target_predictions_M()
    return _Facts(source_NK, right_N, target_MK, change_M, pair_N2.double(), agree_M.double())


def _estimates(facts: _Facts) -> dict[str, float]:
    """Each estimator's accuracy, in [0, 1]."""
    source, target = facts.source_NK, facts.target_MK
    accuracy, classes = facts.source_right_N.mean().item(), source.shape[1]
    read = {
        "average_confidence": average_confidence(target),
        "atc_confidence": thresholded_confidence(source.max(1).values, accuracy, target.max(1).values),
        "atc_entropy": thresholded_confidence(negative_entropy(source), accuracy, negative_entropy(target)),
        "nuclear_norm": on_the_line(scaled_nuclear_norm(source), accuracy, scaled_nuclear_norm(target), classes),
        "fourth_norm": on_the_line(scaled_fourth_norm(source), accuracy, scaled_fourth_norm(target), classes),
    }
    change = facts.change_M.mean().item()
    parts = {name: min(max(value + change, 0.0), 1.0) for name, value in read.items()}
    if facts.source_pair_N2 is not None and facts.target_agree_M is not None:
        images = len(source)
        right, agree = facts.source_pair_N2.sum(0).tolist()
        parts["agreement"] = agreement_on_the_line(
            smoothed_share(right, images),
            smoothed_share(agree, images),
            smoothed_share(facts.target_agree_M.sum().item(), len(target)),
        )
    return parts
