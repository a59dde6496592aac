"""What a run finds out about the classes of its target without labels, and leaves in its model folder.

The class balance is estimated on the model before adaptation; whether ``data.target_classes`` fits is judged there too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pmtrans.config import Config
from pmtrans.data.domain import UNKNOWN
from pmtrans.data.domains import Data
from pmtrans.data.reading.classes import abbreviate
from pmtrans.errors import ConfigError, one_line
from pmtrans.pseudo_labels import present_classes, strangeness
from pmtrans.run.folder import RunFolder
from pmtrans.run.model_notes import ClassBalance, annotate_model
from pmtrans.selection.calibration import calibrated_probabilities, fit_temperature
from pmtrans.selection.collapse import TAKEN_OVER, predicted_counts
from pmtrans.selection.evidence import Evidence, judged_places
from pmtrans.selection.prior import TargetPrior, estimate_prior, for_shares, named_shares, source_prior
from pmtrans.selection.unknown_threshold import UnknownThreshold, calibrate_unknown, fit_unknown

IMAGES_PER_CLASS = 5  # of the target, below which no class is said to be missing
HARDLY_ANY = 0.15  # of the typical share: more cautious than what ``partial`` leaves out
DOUBTFUL = 0.5  # of the typical share: nearly all missing classes have less, and a few others
MISSING = 1 / 6  # of the classes, from which ``same`` looks wrong
UNFIT_LEVEL = 0.95  # of the held-out source images are less strange than
UNFIT = 0.3  # this share of the target, from which ``same`` looks wrong


@dataclass(frozen=True)
class Situation:
    """The target's classes as far as they are known without labels; ``prior`` is None without held-out images."""

    config: Config
    classes: tuple[str, ...]
    source_K: Tensor
    prior: TargetPrior | None
    labelled: tuple[Tensor, Tensor] | None = None  # rows of the evidence and their labels, -1: of no known class

    def summarised(self) -> dict[str, Any]:
        """Fields of ``summary.json``."""
        if self.prior is None:
            return {}
        return {
            "target_prior": named_shares(self.prior.shares_K, self.classes),
            "target_prior_details": self.prior.as_json(self.classes),
        }

    def annotate(self, folder: RunFolder, shipped: str, evidence: Evidence | None) -> float | None:
        """Class balance and threshold of the shipped model, from its own outputs; the share that it calls unknown."""
        if evidence is None or self.prior is None:
            return None
        unknown = _threshold(self.config, evidence, self.labelled)
        known = _of_known_classes(evidence, unknown)
        own_K = self.source_K if shipped != "adapted" else mean_prediction(known)
        shares = (own_K, self.source_K, smoothed(self.prior.shares_K, len(known.target_logits_MK)))
        balance = ClassBalance(*(tuple(one.tolist()) for one in shares))
        annotate_model(folder.model, balance, unknown)
        return None if unknown is None else unknown.share(evidence.target_logits_MK)


def find_situation(config: Config, data: Data, evidence: Evidence | None, of_probe: bool = False) -> Situation:
    """``evidence``: that of the model before adaptation; a probe sees the source as it is, whatever the balance."""
    labels_N = torch.tensor((*data.source.labels, *data.holdout.labels))
    source_K = source_prior(labels_N, len(data.source.classes))
    is_balanced = config.data.balance == "classes"
    if is_balanced:
        source_K = torch.full_like(source_K, 1 / len(source_K))
    labelled, prior = _labelled_rows(data), None
    if evidence is not None:
        known = _of_known_classes(evidence, _threshold(config, evidence, labelled))
        prior = estimate_prior(known, source_K if is_balanced and not of_probe else None)
    return Situation(config, data.source.classes, source_K, prior, labelled)


def _threshold(config: Config, evidence: Evidence, labelled: tuple[Tensor, Tensor] | None) -> UnknownThreshold | None:
    """From when on a target image is of no known class; None where all are."""
    if config.data.target_classes != "open":
        return None
    unknown = fit_unknown(evidence.target_logits_MK)
    if labelled is not None:
        rows, labels = labelled
        unknown = calibrate_unknown(unknown, evidence.target_logits_MK[rows], labels)
    return unknown


def _of_known_classes(evidence: Evidence, unknown: UnknownThreshold | None) -> Evidence:
    """Without the target images that are called unknown, if any others are left."""
    if unknown is None:
        return evidence
    (rows,) = torch.nonzero(unknown.scores(evidence.target_logits_MK) <= 0.5, as_tuple=True)
    return evidence.of_target(rows) if len(rows) else evidence


def _labelled_rows(data: Data) -> tuple[Tensor, Tensor] | None:
    """Of the target images that evidence holds, those with a given label; None where no label tells what is unknown."""
    if data.target_labels is None or not len(data.target_labels.unknown):
        return None
    known = {path: label for part in data.labels_given for path, label in zip(part.paths, part.labels, strict=True)}
    paths = data.target.domain.paths
    judged = [paths[place] for place in judged_places(len(paths)).tolist()]
    rows = [row for row, path in enumerate(judged) if path in known]
    return torch.tensor(rows), torch.tensor([known[judged[row]] for row in rows])


def absent_classes(config: Config, evidence: Evidence | None) -> Tensor | None:
    """Of a partial target, the classes that may well be missing: that nobody is called so any more is no collapse."""
    if config.data.target_classes != "partial" or evidence is None:
        return None
    evidence = for_shares(evidence)
    return ~present_classes(evidence.target_features_MD, evidence.target_logits_MK, DOUBTFUL)[0]


def refuse_reserved(config: Config, classes: tuple[str, ...]) -> None:
    """The answer for images of no class must not be the name of one."""
    if config.data.target_classes == "open" and UNKNOWN in classes:
        raise ConfigError(
            f"The source has a class {UNKNOWN!r}, which is the answer of data.target_classes=open for images of no "
            "class: rename that class, or leave its images out of the source."
        )


def mean_prediction(evidence: Evidence) -> Tensor:
    """The mean calibrated probability of each class over the target, kept above 0."""
    temperature = fit_temperature(evidence.source_logits_NK, evidence.source_labels_N)
    probabilities_MK = calibrated_probabilities(evidence.target_logits_MK, temperature)
    return smoothed(probabilities_MK.double().mean(0), len(probabilities_MK))


def smoothed(shares_K: Tensor, images: int) -> Tensor:
    """As if one more image had been shared among all classes: what was not seen is rare, not impossible."""
    return (shares_K * images + 1 / len(shares_K)) / (images + 1)


def doubts(config: Config, classes: tuple[str, ...], trained: Evidence, probe: Evidence) -> Iterator[str]:
    """One line for each sign that ``data.target_classes=same`` is wrong.

    ``trained``: the source-only model, which knows the classes best; ``probe``: on features that no training has made
    certain of everything.
    """
    if config.data.target_classes != "same":
        return
    trained, probe = for_shares(trained), for_shares(probe)
    counts_K = predicted_counts(trained.target_logits_MK)
    share = counts_K.max().item() / len(trained.target_logits_MK)
    if len(classes) > 1 and share >= TAKEN_OVER:
        yield (
            f"the model before adaptation calls {share:.0%} of the target {one_line(classes[counts_K.argmax()])}: "
            "if that is wrong, it does not see the classes there, and no method is likely to"
        )
    if len(trained.target_logits_MK) >= IMAGES_PER_CLASS * len(classes):
        present_K, _ = present_classes(trained.target_features_MD, trained.target_logits_MK, HARDLY_ANY)
        missing = [name for name, here in zip(classes, present_K.tolist(), strict=True) if not here]
        if len(missing) >= max(2.0, MISSING * len(classes)):
            yield (
                f"the target seems to have hardly an image of {len(missing)} of {len(classes)} source classes "
                f"({abbreviate(missing)}): if it lacks them, train with data.target_classes=partial"
            )
    if config.backbone.weights == "none":  # the features of an untrained transformer fit nothing well
        return
    usual = strangeness(probe.source_logits_NK).quantile(UNFIT_LEVEL)
    unfit = (strangeness(probe.target_logits_MK) > usual).double().mean().item()
    if unfit > UNFIT:
        yield (
            f"{unfit:.0%} of the target images fit their class less than {1 - UNFIT_LEVEL:.0%} of held-out source "
            "images do: if some are of no source class, train with data.target_classes=open"
        )
