"""Probe, source-only and adapted model of a run against each other: estimates, the reference, the verdict.

The reference, which adaptation has to beat, is the better of probe and source-only model. Arbitration compares the
adapted model with the source-only model on the features of the untrained backbone; where the probe is the reference,
its lead over the source-only model is taken off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pmtrans.outcomes import Name, SourceName
from pmtrans.selection.arbitration import arbitrate
from pmtrans.selection.assessment import (
    Change,
    Constants,
    Estimate,
    change_to_adapted,
    change_to_source_only,
    estimate_adapted,
    estimate_source_model,
    source_gain_regressors,
)
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.signals import ModelSignals, PairSignals, read_model, read_pair
from pmtrans.selection.verdict import Verdict, verdict


@dataclass(frozen=True)
class SourceSignals:
    """What probe and source-only model show; without a source-only model the probe alone."""

    probe: ModelSignals
    source_only: ModelSignals | None = None
    on_probe: PairSignals | None = None  # the two against each other on the features of the probe
    on_source: float = 0.0  # the gain that arbitration finds on the features of the source-only model


@dataclass(frozen=True)
class SourceModels:
    """Their estimates and which is better; ``change`` is that from the probe to the source-only model."""

    estimates: dict[Name, Estimate]
    reference: SourceName
    change: Change | None = None

    @property
    def lead(self) -> float:
        """How far the probe is ahead of the source-only model, where it is the reference and there is one."""
        return -self.change.gain if self.change is not None and self.reference == "probe" else 0.0


def read_source_models(probe: Evidence, source_only: Evidence | None) -> SourceSignals:
    """All that is looked at before adaptation."""
    if source_only is None:
        return SourceSignals(read_model(probe))
    return SourceSignals(
        read_model(probe, other=source_only),
        read_model(source_only, neutral=probe, other=probe),
        read_pair(probe, source_only.on_features_of(probe)),
        arbitrate(probe.on_features_of(source_only), source_only).gain,
    )


def compare_source_models(signals: SourceSignals, constants: Constants) -> SourceModels:
    """Estimate both, and find the better one."""
    probe = estimate_source_model(signals.probe, constants)
    if signals.source_only is None or signals.on_probe is None:
        return SourceModels({"probe": probe}, "probe")
    source_only = estimate_source_model(signals.source_only, constants)
    pair = signals.on_probe
    x = source_gain_regressors(pair.gain, signals.on_source, probe.accuracy, source_only.accuracy)
    change = change_to_source_only(x, pair.disputed, pair.images, constants)
    reference: SourceName = "source_only" if change.gain >= 0 else "probe"
    return SourceModels({"probe": probe, "source_only": source_only}, reference, change)


def judge_adapted(models: SourceModels, pair: PairSignals, constants: Constants) -> tuple[Estimate, Verdict]:
    """``pair``: the source-only model (the probe, where there is none) and the adapted one."""
    before = models.estimates.get("source_only", models.estimates["probe"])
    change = change_to_adapted(pair, before.accuracy, constants)
    estimate = estimate_adapted(before, change, pair, constants)
    if models.lead and models.change is not None:
        deviation = math.hypot(change.deviation, models.change.deviation)
        change = Change(change.gain - models.lead, deviation)
    return estimate, verdict(change, pair, models.lead, constants.reliability)


def judge_source_only(models: SourceModels, signals: SourceSignals, constants: Constants) -> Verdict:
    """A source-only model as the end of a run: against the probe."""
    assert models.change is not None
    assert signals.on_probe is not None
    return verdict(models.change, signals.on_probe, reliability=constants.reliability)
