"""The loop: read a batch, forward, backward, clip, step the players, log; between epochs evaluate and save.

It knows no method by name. Data order, augmentation, schedules and random numbers are functions of seed and step,
so a run that is continued from a checkpoint is the run that was never interrupted, bit for bit.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from accelerate import Accelerator
from torch import Tensor

from pmtrans.config import Config
from pmtrans.data.batch import Batch
from pmtrans.data.loader import VanishedImage
from pmtrans.data.sampling import random_seed
from pmtrans.errors import StoppedElsewhere, TrainingError
from pmtrans.methods.method import Method, Moment
from pmtrans.processes.group import Processes
from pmtrans.processes.rows import divided
from pmtrans.processes.sharding import gather_state
from pmtrans.progress import Reporter
from pmtrans.signals import StopRequest
from pmtrans.training.accelerator import prepare, refuse_unshardable
from pmtrans.training.build import Task
from pmtrans.training.checkpoint import Snapshot, help_snapshot, restore_snapshot, take_snapshot
from pmtrans.training.failures import stop_if_not_finite
from pmtrans.training.feed import Feed
from pmtrans.training.passes import Evaluation, Passes
from pmtrans.training.players import create_optimiser, set_learning_rates
from pmtrans.training.records import Records, plain
from pmtrans.training.step import Step

Observer = Callable[[Evaluation], dict[str, Any]]


@dataclass
class Loop:
    """One training of one method, from a snapshot or from the start, to the end."""

    passes_class: ClassVar[type[Passes]] = Passes

    title: str
    method: Method
    task: Task
    config: Config
    folder: Path
    accelerator: Accelerator
    reporter: Reporter
    stop: StopRequest
    processes: Processes = field(default_factory=Processes)
    observers: list[Observer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.steps, self.epoch = self.task.steps(self.config)
        self.evaluations: list[dict[str, Any]] = []
        self.sharded = self.config.train.sharding == "full" and self.processes.count > 1
        self.shown = self.method  # what the main process judges and saves
        if self.sharded:
            self.processes.together(lambda: refuse_unshardable(self.method))
            self.shown = copy.deepcopy(self.method) if self.processes.is_main else self.method
        self.module = prepare(self.accelerator, self.method, self.sharded)
        self.optimiser = create_optimiser(self.method, self.config.train)
        self._move = Step(self.method, self.module, self.optimiser, self.accelerator, self.config.train)
        device, workers = self.accelerator.device, self.config.data.workers
        self.passes = self.passes_class(self.method.model, self.task, workers, self.accelerator, self.processes)
        self.feed = Feed(self.method, self.task, self.config, device, self.processes, self.passes.context)
        self.seconds = 0.0
        self.step = 0

    def resume(self, snapshot: Snapshot) -> None:
        """Go on from a checkpoint."""
        restore_snapshot(snapshot, self.method, self.optimiser)
        self.step, self.seconds, self.evaluations = (
            snapshot.step,
            snapshot.seconds,
            list(snapshot.evaluations),
        )

    def fit(self) -> None:
        """Train to the last step; evaluated and saved on the way."""
        if self._asked_to_stop():  # while the model was being built: nothing is new since the last checkpoint
            self.stop.check()
        if not self.processes.is_main:
            return self._fit(None)
        train = self.config.train
        try:
            with Records(self.folder, train.keep_checkpoints, train.loggers, self.step, self.reporter) as records:
                self._fit(records)
        finally:
            self.reporter.stop()

    def _fit(self, records: Records | None) -> None:
        started = time.monotonic() - self.seconds
        train, feed = self.config.train, self.feed
        self.reporter.start(self.title, self.step, self.steps)
        self.method.train()
        try:
            for batches in feed.steps(self.step):
                values, news = self._one_step(batches)
                self.step += 1
                self.seconds = time.monotonic() - started
                self.reporter.step(self.step, feed.images_per_second)
                if records and (news or self.step % train.log_every == 0 or self.step in (1, self.steps)):
                    speed = {"images_per_second": feed.images_per_second, "waiting_share": feed.waiting_share}
                    place = {"epoch": (self.step - 1) // self.epoch}
                    records.step(self.step, {**place, **values, "seconds": round(self.seconds, 3), **speed})
                if self.step % (train.evaluate_every or self.epoch) == 0 or self.step == self.steps:
                    with feed.paused():
                        self._evaluate(records)
                        self._save(records)
                if records:
                    records.check()
                if self._asked_to_stop():
                    self._save(records, wait=True)
                    self.stop.check()
        except VanishedImage:  # between two steps: what was done is whole
            self._save(records, wait=True)
            raise

    def _asked_to_stop(self) -> bool:
        """Where one process got a signal, all stop; one that comes just now is seen the next time."""
        asked = self.processes.highest(self.stop.signal or 0)
        if asked:
            self.stop.signal = asked
        return bool(asked)

    def _save(self, records: Records | None, wait: bool = False) -> None:
        """The main process writes; where each has a part, all give theirs."""
        if records:
            snapshot = take_snapshot(self.step, self.method, self.optimiser, self.seconds, self.evaluations)
            records.save(snapshot, wait)
        elif self.sharded:
            help_snapshot(self.method, self.optimiser)

    def _one_step(self, batches: list[Batch]) -> tuple[dict[str, Any], bool]:
        """What there is to log, and whether it is of the kind that happens once an epoch and must be logged."""
        moment = Moment(self.step, self.steps, self.epoch)
        context = self.passes.context()
        torch.manual_seed(random_seed(self.config.seed, "before step", self.step))
        self.method.before_step(moment, context)
        torch.manual_seed(random_seed(self.config.seed, "step", self.step))
        rates = set_learning_rates(self.optimiser.param_groups, self.config.train, self.step, self.steps)

        def refuse(values: dict[str, Any], gradients: list[Tensor]) -> None:
            domains = self.task.source, self.task.target
            try:
                stop_if_not_finite(self.folder, self.step, batches, domains, values, rates, gradients)
            except TrainingError as error:
                raise error if self.processes.is_main else StoppedElsewhere(str(error)) from None

        with divided(self.processes.rank, self.processes.count, self.task.batch_size):
            values = self._move(batches, moment, refuse)
        self.method.after_step(moment)
        self.passes.forget()
        return {**values, **context.metrics, **self.method.state(), **rates}, bool(context.metrics)

    def evaluation(self) -> Evaluation:
        """What is known about the model as it is now; where it is sharded, ``shown`` is brought up to it."""
        if self.sharded:
            gather_state(self.method, self.shown if self.processes.is_main else None)
        return self.passes.evaluation(self.step)

    def _evaluate(self, records: Records | None) -> None:
        """All processes make the passes; the main one judges."""
        evaluation = self.evaluation()
        values: dict[str, Any] = {}
        if records is None:
            return
        for observe in self.observers:
            values |= observe(evaluation)
        self.evaluations.append({"step": self.step, **plain(values)})
        records.evaluation(self.step, values)
