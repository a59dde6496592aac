"""``auto.json``: what was asked for, measured and decided, so that an interrupted session resumes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from pmtrans.automatic.plan import SOURCE
from pmtrans.texts import Seconds

Steps = Annotated[int, Field(ge=1, le=2**53, strict=True)]


@dataclass(frozen=True)
class _Cost:
    """A rehearsal: what it measured, and the full length of the training."""

    step: Seconds
    evaluation: Seconds
    start: Seconds
    steps: Steps
    evaluate_every: Steps


@dataclass(frozen=True)
class _Length:
    length: tuple[Steps, Steps]
    seconds: Seconds | None = None


@dataclass(frozen=True)
class StoredPlan:
    """``auto.json``."""

    asked: dict[str, Any]
    lengths: dict[str, _Length]
    costs: dict[str, _Cost]
    failed: dict[str, str]
    data: dict[str, Any] = field(default_factory=dict)
    length: tuple[Steps, Steps] | None = None
    methods_fit: bool = False

    def __post_init__(self) -> None:
        decided = {*self.lengths, *([SOURCE.name] if self.length else [])}
        if not decided <= self.costs.keys():
            raise ValueError("a length without a cost")
