"""``summary.json``: what a script reads when a run is finished."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field

from pmtrans.errors import RunError, one_line
from pmtrans.outcomes import Answer, Name, SourceName
from pmtrans.texts import Count, Fraction, Number, Seconds, like, read_json


@dataclass(frozen=True)
class _Interval:
    """An accuracy and where it may lie."""

    accuracy: Number
    low: Number
    high: Number


@dataclass(frozen=True)
class _Estimate(_Interval):
    level: Number
    parts: dict[str, Number] = field(default_factory=dict)


@dataclass(frozen=True)
class _Measured:
    """Accuracies by labels, where there are some."""

    oracle_accuracy: Number | None = None
    oracle_per_class_mean: Number | None = None
    kept_labels_accuracy: Number | None = None


@dataclass(frozen=True)
class _Evaluation(_Measured):
    gain: Annotated[Number | None, Field(alias="score.arbitration")] = None


@dataclass(frozen=True)
class _Before(_Interval):
    """The run before the labels, on those that were kept."""

    run: str


@dataclass(frozen=True)
class _TakenOver:
    """Another run, and how many target labels trained its model."""

    run: str
    trained: Count


@dataclass(frozen=True)
class _TargetLabels:
    trained: Count
    kept: Count
    accuracy: dict[Name, _Interval | None]
    taken_over: dict[Name, _TakenOver] = field(default_factory=dict)
    before: _Before | None = None
    probe_without: _Measured | None = None


@dataclass(frozen=True)
class _Change:
    estimate: Number | None = None
    oracle_accuracy: Number | None = None


@dataclass(frozen=True)
class _Contribution:
    """What changes without a source."""

    change: _Change


@dataclass(frozen=True)
class _Source:
    images: Count
    held_out: Count
    accuracy: dict[Name, Number | None]
    contribution: _Contribution | None


@dataclass(frozen=True)
class _OldPlace:
    measure: str
    images: Count
    given: Number
    adapted: Number | None


@dataclass(frozen=True)
class _Prior:
    """Shares of the classes by name."""

    low: dict[str, Number] = field(default_factory=dict)
    high: dict[str, Number] = field(default_factory=dict)


Estimate = Annotated[dict[str, Any], like(_Estimate)]
Evaluation = Annotated[dict[str, Any], like(_Evaluation)]


@dataclass(frozen=True)
class Summary:
    """Accuracies are fractions, None where the target has no labels; they chose nothing."""

    method: str
    probe: Fraction | None  # a linear classifier on the untrained backbone
    source_only: Fraction | None
    adapted: Fraction | None  # of the evaluation that was chosen without target labels
    shipped: Name  # which of these three is in ``model/``
    shipped_reason: str
    last: Fraction | None
    oracle: Fraction | None  # the best of all evaluations, chosen with target labels: what nobody can have
    seconds: Seconds
    selected_step: Count
    selection: str
    estimate: Estimate | None  # of the shipped model, without target labels: accuracy, low, high, level, parts
    estimates: dict[str, Estimate | None]  # the same of all three
    verdict: Answer | None  # against the better of the other two
    verdict_reason: str | None
    compared_with: SourceName | None  # which of the other two that was
    evaluations: dict[str, Evaluation | None] = field(default_factory=dict)  # the chosen one of each model
    target_labels: Annotated[dict[str, Any], like(_TargetLabels)] | None = None  # given ones, and what they brought
    sources: dict[str, Annotated[dict[str, Any], like(_Source)]] | None = None  # of several sources, by name
    given: str | None = None  # the run or model that was moved without its source; its numbers are ``source_only``
    old: dict[str, Annotated[dict[str, Any], like(_OldPlace)]] = field(default_factory=dict)
    verdict_probability: Fraction | None = None  # that it is right; of "cannot tell", that of the most probable answer
    target_prior: dict[str, Number] | None = None  # share of each class in the target, estimated without its labels
    unknown_share: Fraction | None = None  # of the target, that the shipped model calls ``unknown``, where it can
    # level, low, high, and the estimates by BBSE and MLLS
    target_prior_details: Annotated[dict[str, Any], like(_Prior)] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_summary(path: Path) -> Summary:
    try:
        return cast(Summary, read_json(path, Summary))
    except (OSError, ValueError):
        raise RunError(f"{one_line(path)!r} cannot be read: remove it, and the same command writes it again.") from None
