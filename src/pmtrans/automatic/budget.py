"""The time that a person gives, and the time that is spent: over all sessions, however the earlier ones ended."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from pmtrans.errors import ConfigError, one_line
from pmtrans.files import write_json
from pmtrans.progress import Reporter
from pmtrans.texts import Seconds, TextError, read_json

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_SAVED_EVERY = 2.0  # seconds: what a killed session may forget of its time


def parse_time(text: str) -> float:
    """Seconds of ``1h``, ``20m``, ``1h30m`` or ``1.5h``."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([dhms])", text.strip().lower())
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text.strip().lower() or seconds <= 0:
        raise ConfigError(f"--time {one_line(text, 60)!r} is no duration: write it as 1h, 20m or 1h30m.")
    return seconds


@dataclass(frozen=True)
class _Spent:
    """``clock.json``."""

    spent: Seconds


class Clock:
    """Seconds spent on a folder, kept in a file so that a killed session counts too."""

    def __init__(self, file: Path, budget: float) -> None:
        self.budget = budget
        self._file = file
        try:
            self._before: float = read_json(file, _Spent).spent
        except (OSError, TextError):
            self._before = 0.0
        self._start = self._saved = time.monotonic()

    @property
    def spent(self) -> float:
        return self._before + time.monotonic() - self._start

    @property
    def left(self) -> float:
        return self.budget - self.spent

    def save(self) -> None:
        self._saved = time.monotonic()
        write_json(self._file, {"spent": round(self.spent, 3)})

    def tick(self) -> None:
        """Called at every step: saved now and then."""
        if time.monotonic() - self._saved >= _SAVED_EVERY:
            self.save()


class TimedReporter(Reporter):
    """The reporter of a training that a clock may end: ``reserve`` seconds before the time is over."""

    def __init__(self, clock: Clock, quiet: bool = False) -> None:
        super().__init__(quiet)
        self.clock, self.reserve = clock, 0.0

    def step(self, step: int, rate: float) -> None:
        super().step(step, rate)
        self.clock.tick()

    def has_had_enough(self) -> bool:
        return self.clock.left <= self.reserve
