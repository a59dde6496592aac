"""Who is right where two models disagree? Neighbours that both models agree on are called as witnesses.

Confidence cannot tell: adaptation makes a model sure of itself, rightly or wrongly. Neither can features that
either model was trained on: they were bent to its own labels. The features of the backbone before anything was
trained are a neutral ground: the baseline's evidence is to hold those (``train`` sees to it). There, each
image that the two models call differently is judged by its nearest neighbours among the target images
that both models call the same and the held-out source images with their true labels. Where adaptation
repaired a cluster that a source boundary cut in two, the repaired half finds its witnesses; where it tore one
apart (a label shift, say), the torn images find the baseline's. The balance estimates the change of accuracy.

Images that were made small for training lose what tells classes apart. Where the untrained backbone saw them larger as
well, that is a second ground, and the judgement is the mean of both: the first misses what a method gained by the help
of larger images, the second sides with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.stats import binomtest
from torch import Tensor
from torch.nn.functional import normalize

from pmtrans.errors import UserError
from pmtrans.selection.collapse import dying_classes
from pmtrans.selection.evidence import Evidence

NEIGHBOURS = 10


@dataclass(frozen=True)
class Arbitration:
    """The judgement of each target image, in [-1, 1]: +1 for the adapted model, -1 for the baseline, 0 for neither."""

    outcome_M: Tensor

    @property
    def for_adapted(self) -> int:
        return int((self.outcome_M > 0).sum())

    @property
    def for_baseline(self) -> int:
        return int((self.outcome_M < 0).sum())

    @property
    def gain(self) -> float:
        """Estimated change of target accuracy by adaptation, in [-1, 1]."""
        return self.outcome_M.double().mean().item()

    @property
    def p_value(self) -> float:
        """Two-sided sign test: the chance of so uneven a judgement if both were right equally often."""
        decided = self.for_adapted + self.for_baseline
        return float(binomtest(self.for_adapted, decided).pvalue) if decided else 1.0


def arbitrate(baseline: Evidence, adapted: Evidence, *, neighbours: int = NEIGHBOURS, chunk: int = 1024) -> Arbitration:
    """Judge every target image on which the two models disagree; both must have seen the same images."""
    check_same_images(baseline, adapted)
    called_M, adapted_M = baseline.target_predictions_M(), adapted.target_predictions_M()
    agreed_M = called_M == adapted_M
    labels_W = torch.cat([called_M[agreed_M], baseline.source_labels_N])

    # A class that adaptation wiped out has no witness left on the target: its loss must not count as a win.
    had_K = torch.bincount(called_M, minlength=baseline.classes)
    kept_K = torch.bincount(called_M[agreed_M], minlength=baseline.classes)
    voiceless_K = dying_classes(kept_K, had_K)

    grounds = [(baseline.source_features_ND, baseline.target_features_MD)]
    if baseline.source_ground_NG is not None and baseline.target_ground_MG is not None:
        grounds.append((baseline.source_ground_NG, baseline.target_ground_MG))
    outcome_M = torch.zeros(len(called_M))
    disputed = (~agreed_M).nonzero().flatten()
    for source_ND, target_MD in grounds:
        target_MD = normalize(target_MD.float(), dim=1)
        witnesses_WD = torch.cat([target_MD[agreed_M], normalize(source_ND.float(), dim=1)], dim=0)
        for rows in disputed.split(chunk):
            nearest_RW = (target_MD[rows] @ witnesses_WD.T).topk(min(neighbours, len(labels_W)), dim=1).indices
            witnesses_R = labels_W[nearest_RW]
            votes_for_adapted = (witnesses_R == adapted_M[rows, None]).sum(1)
            votes_for_baseline = (witnesses_R == called_M[rows, None]).sum(1)
            judged = (votes_for_adapted - votes_for_baseline).sign()
            judged = torch.where((judged > 0) & voiceless_K[called_M[rows]], 0, judged)
            outcome_M[rows] += judged / len(grounds)
    return Arbitration(outcome_M)


def check_same_images(baseline: Evidence, adapted: Evidence) -> None:
    """Refuse evidence that was gathered on other images."""
    same = (
        baseline.target_logits_MK.shape == adapted.target_logits_MK.shape
        and baseline.source_logits_NK.shape == adapted.source_logits_NK.shape
        and torch.equal(baseline.source_labels_N, adapted.source_labels_N)
    )
    if not same:
        raise UserError("The two models' evidence is of different images: gather both on the same hold-out and target.")
