"""How accurate each model of a run is, and what adaptation changed, with constants from tasks whose truth is known.

A model that never trained on the target is read by agreement (``agreement.py``): logit(accuracy) is linear in the
logits of its agreement with the clusters of the untrained features, with those of its own, and with its class means.
Confidence, and its agreement with the other source model, are shown beside it and are not in it: both move more with
the training recipe than with the accuracy. An adapted model, which has been bent to its own labels, is the source model
plus the change that arbitration finds, shrunk where there are few images.

The constants (``left_out_tasks.json``) come from adaptations whose target labels were read for this alone, by
``benchmarks/trust.py --write``; the widths are residuals on tasks that were left out of the fit.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pmtrans.selection.left_out import Linear, Spread, inverse_logit, logit, normal_half
from pmtrans.selection.signals import ModelSignals, PairSignals

LEVEL = 0.9  # of the intervals
READ = ("clusters", "own_clusters", "class_means")  # of the parts of a model's signals
HALF = 50  # target images at which arbitration counts half
ONE_CLASS = "balance"  # among the parts of an estimate: nearly all predictions are of one class
COLLAPSED = 0.2  # of the target images, in classes that died out


@dataclass(frozen=True)
class Estimate:
    """Target accuracy in [0, 1] with its interval at ``level``; ``parts`` holds what it was made of."""

    accuracy: float
    low: float
    high: float
    level: float
    parts: dict[str, float]


@dataclass(frozen=True)
class Change:
    """The expected change of target accuracy from one model to another, and its standard deviation."""

    gain: float
    deviation: float


@dataclass(frozen=True)
class Constants:
    """All that was fitted, and on what."""

    accuracy: Linear  # its logit, of a model that never trained on the target
    accuracy_spread: Spread
    source_gain: Linear  # of the source-only model over the probe
    source_gain_spread: Spread
    gain: Linear  # of an adapted model over the source-only model
    gain_spread: Spread
    adapted_spread: Spread
    reliability: dict[
        str, float
    ]  # of each verdict on tasks left out: how often right, by how often it said it would be
    rests_on: str


@cache
def shipped_constants() -> Constants:
    """Those of the package."""
    return read_constants(json.loads(Path(__file__).with_name("left_out_tasks.json").read_text(encoding="utf-8")))


def read_constants(stored: dict[str, Any]) -> Constants:
    """What ``write_constants`` gives."""
    values: dict[str, Any] = dict(stored)
    for name, value in stored.items():
        if name.endswith("_spread"):
            values[name] = Spread(**value)
        elif name not in ("rests_on", "reliability"):
            values[name] = Linear(tuple(value["coefficients"]), value["intercept"])
    return Constants(**values)


def write_constants(constants: Constants) -> dict[str, Any]:
    """As plain values, for a JSON file."""
    return asdict(constants)


def sampling_deviation(accuracy: float, images: int) -> float:
    """Of the logit of an accuracy that was measured on this many images."""
    accuracy = min(max(accuracy, 0.05), 0.95)
    return 1.0 / math.sqrt(images * accuracy * (1 - accuracy))


def scarcity(classes: int, images: int) -> float:
    """sqrt(classes per image): with few images of each class, clusters and class means say less."""
    return math.sqrt(classes / images)


def regressors(signals: ModelSignals) -> list[float]:
    """What the regression reads of a model."""
    return [logit(signals.parts[name]) for name in READ]


def estimate_source_model(signals: ModelSignals, constants: Constants) -> Estimate:
    """The accuracy of a probe or a source-only model; the lower end is at least that by disagreement discrepancy.

    A model that calls nearly everything one class agrees with any clusters: either the target is so, or the model is
    blind. Then the estimate is what the source's class balance allows, and the lower end is 0.
    """
    value = constants.accuracy(regressors(signals))
    estimate = _with_interval(value, constants.accuracy_spread, signals, signals.parts)
    if signals.balance is not None and signals.balance < estimate.accuracy:
        return replace(estimate, accuracy=signals.balance, low=0.0, parts={**signals.parts, ONE_CLASS: signals.balance})
    return replace(estimate, low=min(max(estimate.low, signals.floor), estimate.accuracy))


def estimate_adapted(before: Estimate, change: Change, pair: PairSignals, constants: Constants) -> Estimate:
    """The estimate of the model before adaptation plus the change."""
    parts = {"before_adaptation": before.accuracy, "change": change.gain}
    value = logit(before.accuracy + change.gain)
    estimate = _with_interval(value, constants.adapted_spread, pair, parts)
    if ONE_CLASS in before.parts:  # what it is measured from is not known
        return replace(estimate, low=0.0, high=max(estimate.high, before.high))
    return estimate


def source_gain_regressors(on_probe: float, on_source: float, probe: float, source_only: float) -> list[float]:
    """Arbitration on the features of either (each sides with its own), and the difference of the estimates."""
    return [on_probe, on_source, source_only - probe]


def change_to_source_only(x: list[float], disputed: float, images: int, constants: Constants) -> Change:
    """From the probe to the source-only model."""
    sampling = math.sqrt(disputed / images)
    return Change(constants.source_gain(x), constants.source_gain_spread(disputed, sampling))


def shrunk_gain(pair: PairSignals) -> float:
    """What arbitration finds, less where there are few images to call as witnesses."""
    return pair.gain * pair.images / (pair.images + HALF)


def change_to_adapted(pair: PairSignals, accuracy: float, constants: Constants) -> Change:
    """From the model before adaptation, of this estimated accuracy, to the adapted one.

    A class that died out has no witnesses left: what was right in it is lost, whatever the others say.
    """
    gain = constants.gain([shrunk_gain(pair)])
    if pair.dead >= COLLAPSED:
        gain = min(gain, -pair.dead * accuracy)
    return Change(gain, constants.gain_spread(pair.disputed, math.sqrt(pair.disputed / pair.images)))


def _with_interval(value: float, spread: Spread, seen: ModelSignals | PairSignals, parts: dict[str, float]) -> Estimate:
    """Inverse logit of value +- the spread's quantile; beyond one percent from 0 and 1 no task has shown anything."""
    most = logit(1.0)
    value = min(max(value, -most), most)
    accuracy = inverse_logit(value)
    deviation = spread(scarcity(seen.classes, seen.images), sampling_deviation(accuracy, seen.images))
    half = normal_half(LEVEL) * deviation
    low = inverse_logit(value - half) if value - half > -most else 0.0
    high = inverse_logit(value + half) if value + half < most else 1.0
    return Estimate(accuracy, low, high, LEVEL, parts)
