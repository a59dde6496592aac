"""Make the runs of a plan: skip what is done, try again what failed, write the tables after each run."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, wait

from pmtrans.bench.display import Display
from pmtrans.bench.engine import Engine
from pmtrans.bench.execute import Outcome, fail, read_result
from pmtrans.bench.jobs import Job, Plan
from pmtrans.bench.suite_files import write_records
from pmtrans.errors import one_line
from pmtrans.signals import Interrupted, StopRequest, stop_on_signals

TRIES = 3  # of a run whose worker process is killed: it may be the run that eats the memory


def run_suite(plan: Plan, engine: Engine, display: Display) -> int:
    """The number of runs that failed. A signal lets the runs under way save, then passes on as ``Interrupted``."""
    waiting = [job for job in plan.jobs if not is_done(job)]
    display.begin(plan, write_records(plan), len(plan.jobs) - len(waiting))
    with stop_on_signals() as stop:
        try:
            return _Run(plan, engine, display, stop, waiting).to_the_end()
        finally:
            display.end()
            engine.close()


def is_done(job: Job) -> bool:
    result = read_result(job.folder)
    return result is not None and result.method == job.method


class _Run:
    """What is waiting, what is under way, and how it went."""

    def __init__(self, plan: Plan, engine: Engine, display: Display, stop: StopRequest, waiting: list[Job]) -> None:
        self.plan, self.engine, self.display, self.stop = plan, engine, display, stop
        self.waiting = waiting
        self.running: dict[Future[Outcome], Job] = {}
        self.lost: Counter[str] = Counter()
        self.failed = 0

    def to_the_end(self) -> int:
        while self.waiting or self.running:
            while self.stop.signal is None and len(self.running) < self.engine.slots and (job := self._next()):
                self.waiting.remove(job)
                self.display.started(job)
                self.running[self.engine.submit(job)] = job
            done, _ = wait(self.running, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in done:
                self._ended(self.running.pop(future), future)
            if self.stop.signal is not None:
                self.engine.stop()
                wait(self.running)
                raise Interrupted(self.stop.signal)
        return self.failed

    def _next(self) -> Job | None:
        """The first run whose shared baseline is not being made just now."""
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
                self.display.say(f"{job.title}: its worker process was lost; it goes on in another")
                self.waiting.insert(0, job)
                return
            outcome = fail(job, f"its worker process was lost {TRIES} times (most often: memory ran out)")
        elif error is not None:
            outcome = fail(job, one_line(f"{type(error).__name__}: {error}"))
        else:
            outcome = future.result()
        self.failed += outcome.status == "failed"
        self.display.ended(job, outcome, write_records(self.plan))
