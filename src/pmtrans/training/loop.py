"""The loop: read a batch, forward, backward, clip, step the players, log; between epochs evaluate and save.

It knows no method by name. Data order, augmentation, schedules and random numbers are functions of seed and step,
so a run that is continued from a checkpoint is the run that was never interrupted, bit for bit.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from pmtrans.backbones.rows import divided
from pmtrans.config import Config
from pmtrans.data.batch import Batch
from pmtrans.data.cache import ImageCache
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.loader import VanishedElsewhere, VanishedImage, pair_batches
from pmtrans.data.sampling import ChosenPairs, PairSampler, Share, Stream, random_seed
from pmtrans.data.transforms import Preprocessing, training_transform
from pmtrans.errors import StoppedElsewhere, TrainingError
from pmtrans.evaluation.passes import Pass, run_pass
from pmtrans.methods.method import Context, Method, Moment, SourcePass, TargetPass
from pmtrans.processes.accelerator import prepare
from pmtrans.processes.group import Processes
from pmtrans.processes.sharding import gather_state, refuse_unshardable
from pmtrans.training.checkpoint import Snapshot, help_snapshot, restore_snapshot, take_snapshot
from pmtrans.training.failure import stop_if_not_finite
from pmtrans.training.players import create_optimiser, set_learning_rates
from pmtrans.training.progress import Reporter
from pmtrans.training.records import Records, plain
from pmtrans.training.schedule import count_steps
from pmtrans.training.signals import StopRequest
from pmtrans.training.step import Step


@dataclass(frozen=True)
class Task:
    """What is trained on. The target has no labels here."""

    source: LabelledDomain
    holdout: LabelledDomain
    source_sample: LabelledDomain  # a few training images, for validators that compare with them
    target: Domain
    preprocessing: Preprocessing
    batch_size: int
    cache: ImageCache | None = None

    def steps(self, config: Config) -> tuple[int, int]:
        """(all steps, steps of an epoch)."""
        return count_steps(config.train, len(self.source), len(self.target), self.batch_size)


@dataclass(frozen=True)
class Evaluation:
    """What is known about the model at one moment, without target labels."""

    step: int
    target: Pass
    holdout: Pass | None
    source_sample: Pass | None


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
    reporter: Reporter
    stop: StopRequest
    processes: Processes = field(default_factory=Processes)
    observers: list[Observer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.steps, self.epoch = self.task.steps(self.config)
        self.evaluations: list[dict[str, Any]] = []
        self._passes: dict[str, tuple[int, Pass]] = {}
        self.sharded = self.config.train.sharding == "full" and self.processes.count > 1
        self.shown = self.method  # what the main process judges and saves
        if self.sharded:
            self.processes.together(lambda: refuse_unshardable(self.method))
            self.shown = copy.deepcopy(self.method) if self.processes.is_main else self.method
        self.module = prepare(self.accelerator, self.method, self.sharded)
        self.optimiser = create_optimiser(self.method, self.config.train)
        self._move = Step(self.method, self.module, self.optimiser, self.accelerator, self.config.train)
        self.seconds = 0.0
        self.step = 0
        self._rate = self._waiting_share = 0.0
        self._news = False

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
        self.reporter.start(self.title, self.step, self.steps)
        self.method.train()
        try:
            for batches in self._steps_of_batches():
                values = self._one_step(batches)
                self.step += 1
                self.seconds = time.monotonic() - started
                self.reporter.step(self.step, self._rate)
                if records and (
                    self._news or self.step % self.config.train.log_every == 0 or self.step in (1, self.steps)
                ):
                    speed = {"images_per_second": self._rate, "waiting_share": self._waiting_share}
                    place = {"epoch": (self.step - 1) // self.epoch}
                    records.step(self.step, {**place, **values, "seconds": round(self.seconds, 3), **speed})
                if self.step % (self.config.train.evaluate_every or self.epoch) == 0 or self.step == self.steps:
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

    def _steps_of_batches(self) -> Iterator[list[Batch]]:
        """For each remaining step its micro-batches, loaded ahead by the workers."""
        data, train, task = self.config.data, self.config.train, self.task
        transform = training_transform(task.preprocessing, data.augmentation, data.flip, data.random_erasing)
        on_gpu = self.accelerator.device.type == "cuda"
        cache = None if data.augmentation == "resized_crop" else task.cache  # a crop of the whole image needs it all
        while self.step < self.steps:
            sampler = Share(self._sampler(), self.processes.rank, self.processes.count)
            batches = pair_batches(
                task.source,
                task.target,
                transform,
                sampler,
                self.config.seed,
                task.preprocessing,
                data.workers,
                on_gpu,
                cache,
            )
            for _ in range(len(sampler) // train.accumulate):
                begin = time.monotonic()
                micro = self._load(batches)
                waited = time.monotonic() - begin
                yield [self.processes.whole(batch.to(self.accelerator.device)) for batch in micro]
                took = time.monotonic() - begin
                images = sum(len(batch.source_index) + len(batch.target_index) for batch in micro)
                self._rate = self.processes.count * images / took
                self._waiting_share = waited / took

    def _load(self, batches: Iterator[Batch]) -> list[Batch]:
        """The micro-batches of a step; where one process cannot read an image, all stop before the step."""
        micro: list[Batch] = []
        unreadable = None
        try:
            micro = [next(batches) for _ in range(self.config.train.accumulate)]
        except VanishedImage as error:
            unreadable = str(error)
        if reason := self.processes.first_reason(unreadable):
            raise VanishedImage(reason) if self.processes.is_main else VanishedElsewhere(reason)
        return micro

    def _sampler(self) -> PairSampler | ChosenPairs:
        """What comes next: both streams to the end, or the rest of this epoch where the method chooses the pairs."""
        size, times, task = self.task.batch_size, self.config.train.accumulate, self.task
        if self.method.chooses_pairs:
            epoch, place = divmod(self.step, self.epoch)
            last = min(self.epoch, self.steps - epoch * self.epoch)
            moment = Moment(self.step, self.steps, self.epoch)
            torch.manual_seed(random_seed(self.config.seed, "pairs", self.step))
            pairs = self.method.choose_pairs(moment, Context(self.target_pass, self.source_pass)).tolist()
            return ChosenPairs(tuple((s, t) for s, t in pairs), epoch, size, place * times, last * times)
        streams = []
        if self.method.uses_source:
            streams.append(Stream(self.config.seed, "source", len(task.source)))
        if self.method.uses_target:
            streams.append(Stream(self.config.seed, "target", len(task.target)))
        return PairSampler(tuple(streams), size, self.step * times, self.steps * times)

    def _one_step(self, batches: list[Batch]) -> dict[str, Any]:
        moment = Moment(self.step, self.steps, self.epoch)
        context = Context(self.target_pass, self.source_pass)
        torch.manual_seed(random_seed(self.config.seed, "before step", self.step))
        self.method.before_step(moment, context)
        self._news = bool(context.metrics)  # what happens once an epoch is logged at the step it happens
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
        return {**values, **context.metrics, **self.method.state(), **rates}

    def target_pass(self) -> TargetPass:
        """The whole target under the model as it is now; made once per step at most."""
        result = self._pass("target", self.task.target)
        return TargetPass(result.features_MF, result.logits_MK)

    def source_pass(self) -> SourcePass:
        """The same for the training part of the source."""
        result = self._pass("source", self.task.source)
        labels_N = torch.tensor(self.task.source.labels, device=result.logits_MK.device)
        return SourcePass(result.features_MF, result.logits_MK, labels_N)

    def _pass(self, name: str, domain: Domain) -> Pass:
        if name not in self._passes or self._passes[name][0] != self.step:
            self._passes.pop(name, None)  # before the next is made: one over a large domain is gigabytes
            images = len(domain)
            own = run_pass(
                self.method.model,
                [domain.paths[place] for place in self.processes.part_of(images)],
                self.task.preprocessing,
                max(1, 2 * self.task.batch_size // self.processes.count),
                self.config.data.workers,
                self.accelerator.autocast,
                self.task.cache,
            )
            result = Pass(*(self.processes.gather(rows, images) for rows in (own.features_MF, own.logits_MK)))
            self._passes[name] = (self.step, result)
        return self._passes[name][1]

    def evaluation(self) -> Evaluation:
        """What is known about the model as it is now; where it is sharded, ``shown`` is brought up to it."""
        if self.sharded:
            gather_state(self.method, self.shown if self.processes.is_main else None)
        holdout = self._pass("holdout", self.task.holdout) if len(self.task.holdout) else None
        sample = self._pass("source_sample", self.task.source_sample) if holdout is not None else None
        return Evaluation(self.step, self._pass("target", self.task.target), holdout, sample)

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
