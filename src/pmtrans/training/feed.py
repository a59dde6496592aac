"""What the loop is fed with: the micro-batches of every step, in an order that is a function of seed and step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction

import torch

from pmtrans.config import Config
from pmtrans.data.batch import Batch
from pmtrans.data.domain import source_stream
from pmtrans.data.loader import VanishedImage, VanishReportedByMainProcess, pair_batches
from pmtrans.data.sampling import AnyStream, ChosenPairs, PairSampler, Share, Stream, WithTargetLabels, random_seed
from pmtrans.data.transforms import training_transform
from pmtrans.methods.method import Method, Moment
from pmtrans.processes.group import Processes
from pmtrans.training.build import Task
from pmtrans.training.passes import Passes


@dataclass
class Feed:
    """``passes`` are for a method that chooses the pairs."""

    method: Method
    task: Task
    config: Config
    device: torch.device
    processes: Processes
    passes: Passes
    images_per_second: float = field(default=0.0, init=False)  # of the last step that ended, in all processes
    waiting_share: float = field(default=0.0, init=False)  # of that step's time, for the data
    _paused: float = field(default=0.0, init=False)  # seconds since that step began which are not its own

    def steps(self, step: int) -> Iterator[list[Batch]]:
        """For each step from this one on its micro-batches, on the device, loaded ahead by the workers."""
        steps, _ = self.task.steps(self.config)
        while step < steps:
            sampler = Share(self._sampler(step), self.processes.rank, self.processes.count)
            batches = self.load(sampler)
            for _ in range(len(sampler) // self.config.train.accumulate):
                begin = time.monotonic()
                micro = self._micro_batches(batches)
                waited = time.monotonic() - begin
                yield [self.processes.whole(batch.to(self.device)) for batch in micro]
                step += 1
                took, self._paused = time.monotonic() - begin - self._paused, 0.0
                images = sum(len(batch.source_index) + len(batch.target_index) for batch in micro)
                self.images_per_second = self.processes.count * images / took
                self.waiting_share = waited / took

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is done here, such as an evaluation, is not part of a step's time."""
        begin = time.monotonic()
        yield
        self._paused += time.monotonic() - begin

    def load(self, sampler: PairSampler | ChosenPairs | Share) -> Iterator[Batch]:
        """The batches that a sampler says, augmented."""
        data, task = self.config.data, self.task
        cache = None if data.augmentation == "resized_crop" else task.cache  # a crop of the whole image needs it all
        return pair_batches(
            task.source,
            task.target,
            training_transform(task.preprocessing, data.augmentation, data.flip, data.random_erasing),
            sampler,
            self.config.seed,
            task.preprocessing,
            data.workers,
            self.device,
            cache,
        )

    def _micro_batches(self, batches: Iterator[Batch]) -> list[Batch]:
        """Those of a step; where one process cannot read an image, all stop before the step."""
        micro: list[Batch] = []
        unreadable = None
        try:
            micro = [next(batches) for _ in range(self.config.train.accumulate)]
        except VanishedImage as error:
            unreadable = str(error)
        if reason := self.processes.first_reason(unreadable):
            raise VanishedImage(reason) if self.processes.is_main else VanishReportedByMainProcess(reason)
        return micro

    def _sampler(self, step: int) -> PairSampler | ChosenPairs:
        """What comes next: both streams to the end, or the rest of this epoch where the method chooses the pairs."""
        times = self.config.train.accumulate
        steps, steps_per_epoch = self.task.steps(self.config)
        if not self.method.chooses_pairs:
            return self.streams(step * times, steps * times)
        epoch, place = divmod(step, steps_per_epoch)
        last = min(steps_per_epoch, steps - epoch * steps_per_epoch)
        torch.manual_seed(random_seed(self.config.seed, "pairs", step))
        pairs = self.method.choose_pairs(Moment(step, steps, steps_per_epoch), self.passes.context()).tolist()
        return ChosenPairs(tuple((s, t) for s, t in pairs), epoch, self.task.batch_size, place * times, last * times)

    def streams(self, first: int, last: int) -> PairSampler:
        """Micro-batches from one to another of the domains that the method uses, each in an order of its own."""
        seed, target = self.config.seed, self.task.target
        streams: list[AnyStream] = []
        if self.method.uses_source:
            streams.append(self._source_stream())
        if self.method.uses_target:
            streams.append(Stream(seed, "target", len(target)))
        return PairSampler(tuple(streams), self.task.batch_size, first, last)

    def _source_stream(self) -> AnyStream:
        """Of the source, or of several in turn, and of labelled target images among them."""
        seed, data, source = self.config.seed, self.config.data, self.task.own_source
        stream = source_stream(seed, source, data.balance == "classes")
        if self.task.target_labels is None:
            return stream
        share = Fraction(data.target_labels_share).limit_denominator(1000)
        return WithTargetLabels(stream, seed, len(source), len(self.task.target_labels), share)
