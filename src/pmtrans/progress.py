"""What a person sees while training: a bar with rate and time left on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from pmtrans.errors import one_line

LINE_EVERY = 60.0  # seconds between two lines in a pipe
WIDE = 130  # columns of a terminal that has room for everything
SHOWN = {"loss": "loss", "cross_entropy": "CE", "beta_b": "b", "beta_g": "g"}


class Reporter:
    """Messages go to stderr, so that stdout stays clean for results."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False, emoji=False, quiet=quiet)
        self.live = self.console.is_terminal and not quiet
        self._bar: Progress | None = None
        self._last_line = -LINE_EVERY
        self._after = self._after_next = 0.0
        self._is_first = False  # whether no step of this training has ended yet

    def note(self, text: str) -> None:
        """One line, shown as it is (markup in names from outside means nothing)."""
        self._say(one_line(text, 2000))

    def warn(self, text: str) -> None:
        self._say("warning: " + one_line(text, 2000), style="yellow")

    def _say(self, text: str, style: str | None = None) -> None:
        """A stderr that is closed or full costs the line, never the training."""
        with suppress(OSError, ValueError):
            self.console.print(text, markup=False, style=style, soft_wrap=True)

    def expect(self, after: float) -> None:
        """How much the run has to do after the training that starts next, in trainings of its length and cost."""
        self._after_next = after

    def start(self, title: str, step: int, steps: int) -> None:
        self._title, self._steps = title, steps
        self._after, self._after_next = self._after_next, 0.0
        self._first_step, self._began, self._last_line = step, time.monotonic(), -LINE_EVERY
        self._is_first = True
        if not self.live:
            return
        title_and_bar = TextColumn("{task.description}"), BarColumn(None if self._is_wide else 8), MofNCompleteColumn()
        pace = (TextColumn("{task.fields[rate]}"), TimeElapsedColumn()) if self._is_wide else ()
        said = TimeRemainingColumn(), TextColumn("{task.fields[said]}")
        self._bar = Progress(*title_and_bar, *pace, *said, console=self.console, expand=self._is_wide)
        self._task = self._bar.add_task(title, total=steps, completed=step, said="", rate="")
        self._bar.start()

    @property
    def _is_wide(self) -> bool:
        return self.console.width >= WIDE

    def step(self, step: int, rate: float) -> None:
        if self._is_first and step < self._steps:  # what it waited for, such as passes over a domain, comes once
            self._first_step, self._began, self._is_first = step, time.monotonic(), False
        if self._bar is not None:
            self._bar.update(self._task, completed=step, rate=f"{rate:.0f} img/s" if rate else "")

    def time_left(self, step: int) -> str:
        """``about 12 min left``: of the whole run, at the pace of this training so far, evaluations included."""
        left = self._left(step)
        return left and f"about {left} left" + (" for the run" if self._after else "")

    def _left(self, step: int) -> str:
        done = step - self._first_step
        if done <= 0:
            return ""
        pace = (time.monotonic() - self._began) / done
        return readable_time(pace * (self._steps - step + self._after * self._steps))

    def has_had_enough(self) -> bool:
        """Whether training should end at this step, as if it were the last; asked after every step."""
        return False

    def values(self, step: int, values: Mapping[str, Any]) -> None:
        """Numbers that were just logged; in a pipe a line with the time of day, once a minute."""
        said = "  ".join(
            f"{short} {values[name]:.3f}" for name, short in SHOWN.items() if isinstance(values.get(name), float)
        )
        if self._bar is not None:
            left = self._left(step) if self._after else ""  # of this training the bar says it
            said = said if self._is_wide else said.partition("  ")[0]
            self._bar.update(self._task, said=f"{said}  run {left}" if left else said)
        elif time.monotonic() - self._last_line >= LINE_EVERY or step >= self._steps:
            self._last_line = time.monotonic()
            rate = values.get("images_per_second") or 0
            parts = (time.strftime("%H:%M:%S"), self._title, f"step {step}/{self._steps}", said, f"{rate:.0f} img/s")
            self.note("  ".join(part for part in (*parts, self.time_left(step)) if part))

    @contextmanager
    def counted(self, title: str, parts: int) -> Iterator[Callable[[], None]]:
        """Progress of work other than training, such as the sections of a page; call what it gives after each part.

        In a pipe, a line with the time of day a minute: what takes less says nothing.
        """
        self.start(title, 0, parts)
        self._last_line, done = time.monotonic(), 0

        def finished_one() -> None:
            nonlocal done
            done += 1
            if self._bar is not None:
                self._bar.update(self._task, completed=done)
            elif time.monotonic() - self._last_line >= LINE_EVERY:
                self._last_line = time.monotonic()
                self.note(f"{time.strftime('%H:%M:%S')}  {title}  {done}/{parts}  {self.time_left(done)}")

        try:
            yield finished_one
        finally:
            self.stop()

    def stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def readable_time(seconds: float) -> str:
    """``12 min``."""
    minutes = seconds / 60
    return f"{minutes / 60:.1f} h" if minutes >= 90 else f"{minutes:.0f} min" if minutes >= 1.5 else f"{seconds:.0f} s"


def is_notebook() -> bool:
    """Whether this runs inside IPython."""
    return "ipykernel" in sys.modules
