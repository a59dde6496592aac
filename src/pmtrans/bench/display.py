"""Progress of a suite: a live table on a terminal, lines otherwise."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pmtrans.bench.execute import Outcome
from pmtrans.bench.jobs import INCOMPLETE, Job, Suite
from pmtrans.bench.results import Result
from pmtrans.errors import one_line
from pmtrans.progress import LINE_EVERY, Reporter, readable_time


class Display:
    """Prints to stderr, so that stdout has the results only."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False, emoji=False, quiet=quiet)
        self._live: Live | None = None
        self._results: Sequence[Result] = ()
        self._running: dict[str, Job] = {}
        self._failed: set[tuple[str, str]] = set()
        self._progress = ""
        self._last_line = time.monotonic()

    def begin(self, suite: Suite, results: Sequence[Result], done: int) -> None:
        self._suite, self._results, self._done = suite, results, done
        self._done_before, self._began = done, time.monotonic()
        tasks = len({job.task for job in suite.jobs})
        self.say(f"{suite.name}: {len(suite.jobs)} runs ({tasks} tasks), {done} done already")
        if suite.problems:
            self.say(f"warning: {INCOMPLETE}: {'; '.join(suite.problems)}")
        if self.console.is_terminal:
            self._live = Live(console=self.console, get_renderable=self._table, refresh_per_second=2)
            self._live.start()

    def started(self, job: Job) -> None:
        self._running[job.title] = job
        if self._live is None:
            self.say(f"[{self._done + len(self._running)}/{len(self._suite.jobs)}] {job.title}")

    def progress(self, job: Job, text: str) -> None:
        self._progress = ", ".join(part for part in (f"{job.title}: {text}", self._time_left()) if part)
        if self._live is None:
            self.say(f"{time.strftime('%H:%M:%S')}  {self._progress}")

    def tick(self) -> None:
        """Called while runs are waited for: in a pipe, a line a minute, also where no run reports its own steps."""
        if self._live is None and time.monotonic() - self._last_line >= LINE_EVERY:
            self.say(f"{time.strftime('%H:%M:%S')}  {self._counted()}")

    def ended(self, job: Job, outcome: Outcome, results: Sequence[Result]) -> None:
        self._running.pop(job.title, None)
        self._results, self._done, self._progress = results, self._done + 1, ""
        if outcome.status == "failed":
            self._failed.add((job.method, job.task))
            self.say(f"{job.title}: failed: {outcome.message}")
            return
        result = next(r for r in results if (r.task, r.method, r.seed) == (job.task, job.method, job.seed))
        values = {"label-free": result.selected, "last": result.last, "oracle": result.oracle}
        accuracies = ", ".join(f"{name} {100 * value:.1f}" for name, value in values.items() if value is not None)
        self.say(f"{job.title}: {accuracies or 'no target labels'} ({result.seconds:.0f} s)")

    def _time_left(self) -> str:
        """Of the suite, at the pace of the runs that ended in this session; before the first, nobody knows."""
        ended = self._done - self._done_before
        if not ended:
            return ""
        left = (time.monotonic() - self._began) / ended * (len(self._suite.jobs) - self._done)
        return f"about {readable_time(left)} left for all {len(self._suite.jobs)} runs"

    def _counted(self) -> str:
        done = (f"{self._done} of {len(self._suite.jobs)} runs done", self._time_left())
        return ", ".join(part for part in done if part)

    def say(self, text: str) -> None:
        self._last_line = time.monotonic()
        self.console.print(one_line(text, 2000), markup=False, soft_wrap=True)

    def end(self) -> None:
        if self._live is not None:
            self._live.refresh()
            self._live.stop()
            self._live = None

    def _table(self) -> Table:
        """Label-free accuracy, mean over the finished seeds."""
        tasks = [task for task in self._suite.tasks if any(job.task == task for job in self._suite.jobs)]
        caption = self._progress or self._counted()
        table = Table(title=f"{self._suite.name}, label-free accuracy", caption=Text(one_line(caption)))
        for name in ("", *tasks):
            table.add_column(Text(name), justify="right" if name else "left")
        for method in self._suite.methods:
            table.add_row(Text(one_line(method, 60)), *(self._cell(method, task) for task in tasks))
        return table

    def _cell(self, method: str, task: str) -> str:
        done = [r.selected for r in self._results if (r.method, r.task) == (method, task) and r.selected is not None]
        running = any((job.method, job.task) == (method, task) for job in self._running.values())
        text = (
            f"{100 * statistics.fmean(done):.1f}"
            if done
            else "[red]failed[/red]"
            if (method, task) in self._failed
            else ""
        )
        return f"{text} [cyan]...[/cyan]".strip() if running else text or "[dim].[/dim]"


class RunReporter(Reporter):
    """The reporter of one run of a suite: its warnings, and its progress at intervals."""

    def __init__(self, display: Display, job: Job, every: float = LINE_EVERY) -> None:
        super().__init__(quiet=True)
        self._display, self._job = display, job
        self._every = 0.5 if display.console.is_terminal else every
        self._last_report = time.monotonic()

    def warn(self, text: str) -> None:
        self._display.say(f"{self._job.title}: warning: {text}")

    def values(self, step: int, values: Mapping[str, Any]) -> None:
        if time.monotonic() - self._last_report >= self._every:
            self._last_report = time.monotonic()
            rate = values.get("images_per_second") or 0
            parts = (f"{self._title}, step {step}/{self._steps}, {rate:.0f} img/s", self.time_left(step))
            self._display.progress(self._job, ", ".join(part for part in parts if part))
