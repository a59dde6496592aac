"""The list of validators: what runs at each evaluation, and what the report says about each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pmtrans.selection.arbitration import arbitrate
from pmtrans.selection.evidence import MANY_CLASSES, Evidence
from pmtrans.selection.validators.bnm import bnm
from pmtrans.selection.validators.class_ami import class_ami
from pmtrans.selection.validators.dev import dev
from pmtrans.selection.validators.entropy import entropy
from pmtrans.selection.validators.information_maximisation import information_maximisation
from pmtrans.selection.validators.reverse import reverse
from pmtrans.selection.validators.snd import snd
from pmtrans.selection.validators.softmax_correlation import softmax_correlation
from pmtrans.selection.validators.source_accuracy import source_accuracy


@dataclass(frozen=True)
class Validator:
    """A score of one model that needs no target label; higher is better for all of them."""

    name: str
    title: str
    paper: str
    function: Callable[[Evidence], float]
    expensive: bool = False  # fits a classifier or clusters the features: seconds on large domains
    needs_source_train: bool = False


VALIDATORS: dict[str, Validator] = {
    validator.name: validator
    for validator in (
        Validator("source_accuracy", "Source hold-out accuracy", "-", source_accuracy),
        Validator("entropy", "Negative entropy", "Morerio et al., ICLR 2018", entropy),
        Validator(
            "information_maximisation",
            "Information maximisation",
            "Bridle et al., NIPS 1991; Musgrave et al., 2022",
            information_maximisation,
        ),
        Validator("bnm", "Nuclear norm (BNM)", "Cui et al., CVPR 2020", bnm),
        Validator(
            "softmax_correlation",
            "Class correlation (SoftmaxCorr)",
            "Tu et al., TMLR 2024",
            softmax_correlation,
        ),
        Validator("snd", "Soft neighbourhood density (SND)", "Saito et al., ICCV 2021", snd),
        Validator("class_ami", "Classes against clusters (ClassAMI)", "Musgrave et al., 2022", class_ami, True),
        Validator("dev", "Deep embedded validation (DEV)", "You et al., ICML 2019", dev, True, True),
        Validator("reverse", "Reverse validation", "Zhong et al., ECML 2010", reverse, True),
    )
}


ARBITRATION = "arbitration"


def score_names() -> set[str]:
    """The names of all scores; a function, as validators may be added."""
    return {*VALIDATORS, ARBITRATION}


def score_all(evidence: Evidence, baseline: Evidence | None = None, *, expensive: bool = True) -> dict[str, float]:
    """Every validator's score by name; DEV is left out where the evidence has no source training features.

    With the evidence of the model before adaptation, ``arbitration`` is added: the estimated change of
    target accuracy since then, which the rule uses to notice an adaptation that hurts. With more than
    ``MANY_CLASSES`` the expensive ones are left out, and the others look at an even sample of the images.
    """
    has_train = evidence.source_train_features_PD is not None
    expensive = expensive and evidence.classes <= MANY_CLASSES
    looked_at = evidence.sampled()
    scores = {
        name: validator.function(looked_at)
        for name, validator in VALIDATORS.items()
        if (expensive or not validator.expensive) and (has_train or not validator.needs_source_train)
    }
    if baseline is not None:
        scores[ARBITRATION] = arbitrate(baseline, evidence).gain
    return scores
