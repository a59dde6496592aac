"""Execute a suite: skip finished runs, retry failed ones, write the tables after each run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

from pmtrans.bench.display import Display
from pmtrans.bench.engine import Engine
from pmtrans.bench.execute import Outcome, fail, read_result
from pmtrans.bench.jobs import Job, Suite
from pmtrans.bench.results import Result
from pmtrans.bench.suite_files import write_records
from pmtrans.errors import one_line
from pmtrans.signals import Interrupted, StopRequest, stop_on_signals

TRIES = 3  # of a run whose worker process is killed: the run itself may need too much memory
Write = Callable[[Suite], Sequence[Result]]


def run_suite(suite: Suite, engine: Engine, display: Display, write: Write = write_records) -> int:
    """Returns the number of failed runs. On a signal the active runs save, then ``Interrupted`` is raised.

    ``write``: what writes the tables, and gives the results in them.
    """
    waiting = [job for job in suite.jobs if not is_done(job)]
    display.begin(suite, write(suite), len(suite.jobs) - len(waiting))
    with stop_on_signals() as stop:
        try:
            return _SuiteRun(suite, engine, display, stop, waiting, write).run()
        finally:
            display.end()
            engine.close()


def is_done(job: Job) -> bool:
    result = read_result(job.folder)
    return result is not None and result.method == job.method


class _SuiteRun:
    """Waiting and active runs, and the number of failures."""

    def __init__(
        self, suite: Suite, engine: Engine, display: Display, stop: StopRequest, waiting: list[Job], write: Write
    ) -> None:
        self.suite, self.engine, self.display, self.stop = suite, engine, display, stop
        self.waiting, self.write = waiting, write
        self.running: dict[Future[Outcome], Job] = {}
        self.lost: Counter[str] = Counter()
        self.failed = 0

    def run(self) -> int:
        while self.waiting or self.running:
            while self.stop.signal is None and len(self.running) < self.engine.slots and (job := self._next()):
                self.waiting.remove(job)
                self.display.started(job)
                self.running[self.engine.submit(job)] = job
            done, _ = wait(self.running, timeout=0.5, return_when=FIRST_COMPLETED)
            self.display.tick()
            for future in done:
                self._ended(self.running.pop(future), future)
            if self.stop.signal is not None:
                self.engine.stop()
                wait(self.running)
                raise Interrupted(self.stop.signal)
        return self.failed

    def _next(self) -> Job | None:
        """The first waiting run whose shared baseline is not still to be trained by another."""
        open_runs = {job.folder for job in (*self.waiting, *self.running.values())}
        return next((job for job in self.waiting if job.after not in open_runs), None)

    def _ended(self, job: Job, future: Future[Outcome]) -> None:
        error = future.exception()
        stopped = error is None and future.result().status == "stopped"
        if stopped and self.stop.signal is not None:
            return
        if stopped or isinstance(error, self.engine.lost):
            self.lost[job.title] += 1
            if self.lost[job.title] < TRIES:
                self.display.say(f"{job.title}: its worker process was lost; resuming in another")
                self.waiting.insert(0, job)
                return
            outcome = fail(job, f"its worker process was lost {TRIES} times (most often: out of memory)")
        elif error is not None:
            outcome = fail(job, one_line(f"{type(error).__name__}: {error}"))
        else:
            outcome = future.result()
        self.failed += outcome.status == "failed"
        self.display.ended(job, outcome, self.write(self.suite))
