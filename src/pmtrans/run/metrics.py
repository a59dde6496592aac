"""``metrics.jsonl``: one JSON object a line, appended as training goes, cut back when a run is resumed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pmtrans.files import write_text
from pmtrans.texts import Count, TextError, checked, parse_json, read_text

TIMES = ("seconds", "images_per_second", "waiting_share")  # what may differ between a run and its repetition
Measured = Annotated[float, Field(ge=-1e39, le=1e39, strict=True)]  # a loss that diverges is a float32 still
Concentration = Annotated[float, Field(gt=0, le=1e39, strict=True)]


class _Line(BaseModel):
    """What a line may hold: numbers by name, and these."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Measured | None]
    step: Count
    beta_b: Concentration | None = None
    beta_g: Concentration | None = None
    event: str | None = None
    warnings: list[str] | None = None

    @model_validator(mode="after")
    def _has_a_whole_beta(self) -> _Line:
        if (self.beta_b is None) != (self.beta_g is None):
            raise ValueError("half a Beta")
        return self


class Listener(Protocol):
    """Hears the numbers of each line that is written."""

    def write(self, step: int, values: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class MetricsLog:
    """Appends lines; a line that a crash cut in half is dropped when the log is opened again."""

    def __init__(self, path: Path, last_step: int = -1) -> None:
        """Keep what was logged up to ``last_step``: what came after it will be done, and logged, again."""
        self.path = path
        kept = [line for line in read_metrics(path) if line["step"] <= last_step]
        write_text(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = path.open("a", encoding="utf-8")
        self.listeners: list[Listener] = []

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        clean = {name: _plain(value) for name, value in values.items()}
        self._file.write(json.dumps({"step": step, **clean}) + "\n")
        self._file.flush()
        numbers = {name: float(value) for name, value in clean.items() if isinstance(value, int | float)}
        for listener in self.listeners:
            listener.write(step, numbers)

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()
        with suppress(OSError):  # every line was flushed: what is still buffered is what the disk had refused
            self._file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All whole lines; a broken last line is what a crash leaves and is skipped, as is what no run has written."""
    if not path.exists():
        return []
    lines = []
    for text in read_text(path).split("\n"):
        with suppress(TextError):
            line = parse_json(text)
            checked(line, _Line)
            lines.append(line)  # as it was written: an epoch is no float
    return lines


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
