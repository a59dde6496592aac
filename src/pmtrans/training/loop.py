"""The loop: read a batch, forward, backward, clip, step the players, log; between epochs evaluate and save.

It knows no method by name. Data order, augmentation, schedules and random numbers are functions of seed and step,
so a run that is resumed from a checkpoint is the run that was never interrupted, bit for bit.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from pmtrans.config import Config
from pmtrans.data.batch import Batch
from pmtrans.data.loader import VanishedImage
from pmtrans.data.sampling import random_seed
from pmtrans.methods.method import Method, Moment
from pmtrans.processes.group import Processes
from pmtrans.processes.rows import divided
from pmtrans.processes.sharding import gather_state
from pmtrans.progress import Reporter
from pmtrans.selection.judge import Judged
from pmtrans.signals import StopRequest
from pmtrans.training.accelerator import prepare, refuse_unshardable
from pmtrans.training.build import Task
from pmtrans.training.checkpoint import Snapshot, restore_snapshot
from pmtrans.training.failures import FiniteGuard
from pmtrans.training.feed import Feed
from pmtrans.training.passes import Evaluation, Passes
from pmtrans.training.players import create_optimiser
from pmtrans.training.records import NoRecords, Records, as_numbers
from pmtrans.training.step import Step

Observer = Callable[[Evaluation], dict[str, Any]]


@dataclass
class Loop:
    """One training of one method, from a snapshot or from the start, to the end."""

    title: str
    method: Method
    task: Task
    config: Config
    folder: Path
    accelerator: Accelerator
    passes: Passes
    reporter: Reporter
    stop: StopRequest
    processes: Processes = field(default_factory=Processes)
    snapshot: Snapshot | None = None

    def __post_init__(self) -> None:
        self.steps, self.epoch = self.task.steps(self.config)
        self.sharded = self.config.train.sharding == "full" and self.processes.count > 1
        self.whole = self.method  # what the main process judges and saves; of a sharded method a copy with all parts
        if self.sharded:
            self.processes.together(lambda: refuse_unshardable(self.method))
            self.whole = copy.deepcopy(self.method) if self.processes.is_main else self.method
        module = prepare(self.accelerator, self.method, self.sharded)
        self.optimiser: torch.optim.Optimizer = self.processes.together(
            lambda: create_optimiser(self.method, self.config.train)
        )
        guard = FiniteGuard(self.folder, self.task.source.images, self.task.target, self.processes.is_main)
        self._move = Step(self.method, module, self.optimiser, self.accelerator, self.config.train, guard)
        self.feed = Feed(self.method, self.task, self.config, self.accelerator.device, self.processes, self.passes)
        self.step, self.seconds = 0, 0.0
        self.evaluations: list[dict[str, Any]] = []  # as logged; nothing chooses by them
        self.judged: list[Judged] = []  # the judge's own memory of them
        if self.snapshot is not None:
            restore_snapshot(self.snapshot, self.method, self.optimiser)
            self.step, self.seconds = self.snapshot.step, self.snapshot.seconds
            self.evaluations, self.judged = list(self.snapshot.evaluations), list(self.snapshot.judged)

    def fit(self, observers: Sequence[Observer] = ()) -> None:
        """Train to the last step; evaluated and saved on the way."""
        self._check_stop()  # while the model was being built: nothing is new since the last checkpoint
        try:
            with self._open_records() as records:
                self._fit(records, observers)
        finally:
            self.reporter.stop()

    def _fit(self, records: Records | NoRecords, observers: Sequence[Observer]) -> None:
        train, started = self.config.train, time.monotonic() - self.seconds
        self.reporter.start(self.title, self.step, self.steps)
        self.method.train()
        try:
            for batches in self.feed.steps(self.step):
                # pseudo labels, then move every player
                values, must_log = self.take_step(batches)
                self.step += 1
                self.seconds = time.monotonic() - started

                # show and log
                self.reporter.step(self.step, self.feed.images_per_second)
                if must_log or self.step % train.log_every == 0 or self.step in (1, self.steps):
                    speed = {
                        "images_per_second": self.feed.images_per_second,
                        "waiting_share": self.feed.waiting_share,
                    }
                    epoch = {"epoch": (self.step - 1) // self.epoch}
                    records.step(self.step, {**epoch, **values, "seconds": round(self.seconds, 3), **speed})

                # evaluate and save
                ends_early = self.step < self.steps and self.reporter.has_had_enough()
                is_due = self.step % (train.evaluate_every or self.epoch) == 0
                is_last = ends_early or self.step == self.steps
                if is_due or is_last:
                    with self.feed.paused():
                        with self._settled_head(stays=is_last):
                            self._evaluate(records, observers)
                        records.save(self)

                # stop where a signal, or a failed write, asks for it
                records.check()
                if self._asked_to_stop():
                    records.save(self, wait=True)
                    self.stop.check()
                if ends_early:
                    break
        except VanishedImage:  # between two steps: what was done is whole
            records.save(self, wait=True)
            raise

    def take_step(self, batches: list[Batch]) -> tuple[dict[str, Any], bool]:
        """What there is to log, and whether it is of the kind that happens once an epoch and must be logged."""
        pairs = self.task.batch_size * self.config.train.accumulate
        moment = Moment(self.step, self.steps, self.epoch, pairs=pairs)

        # pseudo labels, and whatever else a method refreshes between steps
        context = self.passes.context()
        if self.step == 0:  # nothing is lost if it is made again
            context.check_stop = self._check_stop
        torch.manual_seed(random_seed(self.config.seed, "before step", self.step))
        self.method.begin_step(moment, context)

        # gradients of every player, refused if not finite, and the move
        torch.manual_seed(random_seed(self.config.seed, "step", self.step))
        with divided(self.processes.rank, self.processes.count, self.task.batch_size):
            values = self._move(batches, moment)

        # averages and projections of what has moved
        self.method.after_step(moment)
        if self.method.average is not None:
            self.method.average.follow(self.method.model, moment.step)
        self.passes.forget()
        return {**values, **context.metrics, **self.method.state()}, bool(context.metrics)

    def evaluation(self) -> Evaluation:
        """What is known about the model as it is now; where it is sharded, ``whole`` is brought up to it."""
        if self.sharded:
            gather_state(self.method, self.whole if self.processes.is_main else None)
        return self.passes.evaluation(self.step)

    def _evaluate(self, records: Records | NoRecords, observers: Sequence[Observer]) -> None:
        """All processes make the passes; the main one has the observers."""
        evaluation = self.evaluation()
        values: dict[str, Any] = {}
        for observe in observers:
            values |= observe(evaluation)
        self.evaluations.append({"step": self.step, **as_numbers(values)})
        records.evaluation(self.step, values)

    @contextmanager
    def _settled_head(self, stays: bool) -> Iterator[None]:
        """The head as it is judged and shipped; then as it was, unless this was the last step."""
        head = self.method.evaluated.head
        before = {name: value.clone() for name, value in head.state_dict().items()}
        if not self.method.settle_head(self.passes.context()):
            yield
            return
        try:
            with self.passes.another_head(stays):
                yield
        except BaseException:  # a checkpoint that is saved because of it must be able to continue the training
            head.load_state_dict(before)
            raise
        if not stays:
            head.load_state_dict(before)

    def _open_records(self) -> Records | NoRecords:
        if not self.processes.is_main:
            return NoRecords(self.sharded)
        train = self.config.train
        return Records(self.folder, train.keep_checkpoints, train.loggers, self.step, self.reporter)

    def _check_stop(self) -> None:
        if self._asked_to_stop():
            self.stop.check()

    def _asked_to_stop(self) -> bool:
        """Where one process got a signal, all stop; one that comes just now is seen the next time."""
        asked = self.processes.highest(self.stop.signal or 0)
        if asked:
            self.stop.signal = asked
        return bool(asked)
