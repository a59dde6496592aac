"""An estimate of target accuracy with an interval, from no target label at all."""

from __future__ import annotations

from pmtrans.selection.assessment import (
    Constants,
    Estimate,
    change_to_adapted,
    estimate_adapted,
    estimate_source_model,
    shipped_constants,
)
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.signals import read_model, read_pair


def estimate_accuracy(
    evidence: Evidence, baseline: Evidence | None = None, constants: Constants | None = None
) -> Estimate:
    """Estimate the target accuracy of one model.

    ``baseline``: for an adapted model, the model before adaptation with features that no training has bent to its
    labels. Without it the model must not have been trained on the target.
    """
    constants = shipped_constants() if constants is None else constants
    if baseline is None:
        return estimate_source_model(read_model(evidence), constants)
    before = estimate_source_model(read_model(baseline), constants)
    pair = read_pair(baseline, evidence)
    return estimate_adapted(before, change_to_adapted(pair, before.accuracy, constants), pair, constants)
