"""``summary.json``: what a script reads when a run is finished."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import AfterValidator

from pmtrans.errors import RunError, one_line
from pmtrans.texts import read_json


def _numbers(estimate: dict[str, Any]) -> dict[str, Any]:
    """An estimate as a run states it."""
    parts = estimate.get("parts", {})
    values = [estimate.get(name) for name in ("accuracy", "low", "high", "level")]
    if not isinstance(parts, dict) or not all(type(one) in (int, float) for one in (*values, *parts.values())):
        raise ValueError("an estimate has an accuracy, an interval, its level and its parts")
    return estimate


Stated = Annotated[dict[str, Any], AfterValidator(_numbers)]


@dataclass(frozen=True)
class Summary:
    """Accuracies are fractions, None where the target has no labels; they chose nothing."""

    method: str
    probe: float | None  # a linear classifier on the untrained backbone
    source_only: float | None
    adapted: float | None  # of the evaluation that was chosen without target labels
    shipped: str  # which of these three is in ``model/``: probe, source_only or adapted
    shipped_reason: str
    last: float | None
    oracle: float | None  # the best of all evaluations, chosen with target labels: what nobody can have
    seconds: float
    selected_step: int
    selection: str
    estimate: Stated | None  # of the shipped model, without target labels: accuracy, low, high, level, parts
    estimates: dict[str, Stated | None]  # the same of all three
    verdict: str | None  # helped, unchanged, hurt or cannot tell, against the better of the other two
    verdict_reason: str | None
    compared_with: str | None  # which of the other two that was
    evaluations: dict[str, Any] = field(default_factory=dict)  # the chosen evaluation of each of the three
    target_labels: dict[str, Any] | None = None  # given ones: trained, kept, accuracy on those kept by model
    sources: dict[str, Any] | None = None  # of several sources: images, held_out, accuracy by model, contribution
    given: str | None = None  # the run or model that was moved without its source; its numbers are ``source_only``
    old: dict[str, Any] = field(default_factory=dict)  # of each old place: measure, images, given, adapted
    verdict_probability: float | None = None  # that it is right; of "cannot tell", that of the most probable answer
    target_prior: dict[str, float] | None = None  # share of each class in the target, estimated without its labels
    unknown_share: float | None = None  # of the target, that the shipped model calls ``unknown``, where it can
    target_prior_details: dict[str, Any] | None = None  # level, low, high, and the estimates by BBSE and MLLS

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_summary(path: Path) -> Summary:
    try:
        return cast(Summary, read_json(path, Summary))
    except (OSError, ValueError):
        raise RunError(f"{one_line(path)!r} cannot be read: remove it, and the same command writes it again.") from None
