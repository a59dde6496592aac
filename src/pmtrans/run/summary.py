"""``summary.json``: what a script reads when a run is finished."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pmtrans.errors import RunError, one_line
from pmtrans.files import read_json


@dataclass(frozen=True)
class Summary:
    """Accuracies are fractions, None where the target has no labels; these four chose nothing."""

    method: str
    source_only: float | None
    adapted: float | None  # of the model in ``model/``, chosen without target labels
    last: float | None
    oracle: float | None  # the best of all evaluations, chosen with target labels: what nobody can have
    seconds: float
    selected_step: int
    selection: str
    estimate: dict[str, Any] | None  # accuracy, low, high, parts: made without target labels
    verdict: str | None  # helped, unchanged or hurt; None without a baseline
    verdict_reason: str | None
    evaluations: dict[str, Any] = field(default_factory=dict)  # the last evaluation of each training

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_summary(path: Path) -> Summary:
    try:
        return Summary(**read_json(path))
    except (OSError, TypeError, ValueError):
        raise RunError(f"{one_line(path)!r} cannot be read: remove it, and the same command writes it again.") from None
