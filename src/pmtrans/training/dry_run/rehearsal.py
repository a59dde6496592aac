"""The real loop for a few steps, to measure what a run needs: memory on real images, time on the clock.

Passes over whole domains are made up (their features are random numbers), so that a plan takes seconds where the run
takes days; a few images tell what a pass costs.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from pmtrans.config import Config
from pmtrans.data.batch import Batch
from pmtrans.data.domain import Domain
from pmtrans.data.domains import Data
from pmtrans.data.transforms import Preprocessing
from pmtrans.evaluation.passes import Pass, run_pass
from pmtrans.machine import available_memory, begin_peak, peak_memory, wait_for
from pmtrans.model import Model
from pmtrans.processes.group import Processes
from pmtrans.progress import Reporter
from pmtrans.signals import StopRequest
from pmtrans.training.accelerator import create_accelerator
from pmtrans.training.build import build, ground_size, second_view_size
from pmtrans.training.failures import OutOfMemory, explained_memory
from pmtrans.training.loop import Loop
from pmtrans.training.passes import Passes

MOMENTS = 4  # phases and schedules may change what a step costs: steps are timed in each quarter of the run
ROUNDS = 5
PATIENCE = 20.0  # seconds that timed steps may take in all, one round of them in any case


@dataclass(frozen=True)
class Memory:
    """Bytes. ``rest``: activations, images, and what libraries need while they compute."""

    program: int  # Python and its libraries, before the model; 0 on a GPU
    weights: int
    gradients: int
    optimiser: int
    peak: int
    available: int
    measured: bool  # False: worked out from smaller batches, as this one would not fit

    @property
    def rest(self) -> int:
        return max(0, self.peak - self.program - self.weights - self.gradients - self.optimiser)

    @property
    def fits(self) -> bool:
        return self.measured and self.peak <= self.available


@dataclass(frozen=True)
class Times:
    """Seconds. ``steps`` are those of each part of the run, in order."""

    steps: tuple[float, ...]
    evaluation: float
    probe: float  # one pass over both domains
    second_view: float  # one more with larger images, for methods that label the target with its help

    def of_run(self, steps: int, evaluations: int) -> float:
        return steps * statistics.mean(self.steps) + evaluations * self.evaluation


class MadeUpPasses(Passes):
    """Random features and predictions of the right shapes, made once."""

    def forget(self) -> None:
        pass

    def _make(self, domain: Domain, model: Model, preprocessing: Preprocessing) -> Pass:
        shapes = (len(domain), model.backbone.features), (len(domain), model.classes)
        features_MF, logits_MK = (torch.rand(shape, device=self.accelerator.device) for shape in shapes)
        return Pass(features_MF, logits_MK)


class Rehearsal(Loop):
    """The real loop, but that any step of the run can be taken at any time."""

    def step_at(self, step: int, batches: list[Batch]) -> None:
        """The step ``step`` of the run, on these micro-batches."""
        self.step = step
        self.method.train()
        self.take_step([batch.to(self.accelerator.device) for batch in batches])
        wait_for(self.accelerator.device)

    def moments(self) -> list[int]:
        """Steps in the middle of each part of the run, none at the start of an epoch, where labels are refreshed."""
        wanted = [int(self.steps * (part + 0.5) / MOMENTS) for part in range(MOMENTS)]
        return [min(step + (step % self.epoch == 0), self.steps - 1) for step in wanted]

    def batches(self) -> Iterator[list[Batch]]:
        """Micro-batches of a step each, loaded as training loads them, but that no method chooses them."""
        times = self.config.train.accumulate
        loaded = self.feed.load(self.feed.streams(0, times * (1 + MOMENTS * ROUNDS)))
        while micro := list(itertools.islice(loaded, times)):
            yield micro

    def available(self) -> int:
        """Bytes that this process has or could still get."""
        return available_memory(self.accelerator.device)

    def trainable(self) -> list[torch.nn.Parameter]:
        return [p for p in self.method.parameters() if p.requires_grad]


def rehearse(config: Config, data: Data, scratch: Path, reporter: Reporter) -> Rehearsal:
    accelerator = create_accelerator(config.train.precision, config.train.device)
    method, task, _ = build(config, data, reporter)
    untrained = lambda: (method.model, task.preprocessing)  # noqa: E731
    passes = MadeUpPasses(method.evaluated, task, config.data.workers, accelerator, Processes(), untrained)
    return Rehearsal("plan", method, task, config, scratch, accelerator, passes, Reporter(quiet=True), StopRequest())


def measure_memory(loop: Rehearsal, batches: list[Batch], program: int) -> tuple[Memory, int | None]:
    """By one step with the whole batch, unless smaller ones say that it cannot fit; then also a batch that does."""
    device, step = loop.accelerator.device, loop.moments()[-1]
    whole, few = loop.task.batch_size, max(1, loop.task.batch_size // 8)
    available, ran_out = available_memory(device), False
    loop.passes.target()
    loop.step_at(step, [first_pairs(batch, few) for batch in batches])  # makes gradients and the optimiser's state
    peaks = []
    for pairs in (few, 2 * few) if whole > 2 * few else ():
        begin_peak(device)
        loop.step_at(step, [first_pairs(batch, pairs) for batch in batches])
        peaks.append(peak_memory(device))
    per_pair = max(0.0, (peaks[1] - peaks[0]) / few) if peaks else 0.0
    peak = int(peaks[0] + (whole - few) * per_pair) if peaks else 0
    if peak <= available:
        try:
            with explained_memory(loop.config):
                begin_peak(device)  # what smaller steps have freed is in no step of a run
                loop.step_at(step, batches)
                peak = peak_memory(device)
        except OutOfMemory:
            ran_out = True
            if not peaks:
                raise
    weights = [*loop.method.parameters(), *loop.method.buffers()]
    states = [value for state in loop.optimiser.state.values() for value in state.values()]
    memory = Memory(
        program=program if device.type == "cpu" else 0,
        weights=sum(tensor.nbytes for tensor in weights),
        gradients=sum(p.nbytes for p in loop.trainable()),
        optimiser=sum(value.nbytes for value in states if isinstance(value, torch.Tensor)),
        peak=peak,
        available=available,
        measured=peak <= available and not ran_out,
    )
    if memory.fits:
        return memory, None
    fitting = max(1, whole // 2)
    while peaks and fitting > few and peaks[0] + (fitting - few) * per_pair > 0.9 * available:
        fitting //= 2
    return memory, fitting


def first_pairs(batch: Batch, pairs: int) -> Batch:
    """The same batch with fewer of them."""
    return Batch(*(getattr(batch, name)[:pairs] for name in batch.__dataclass_fields__))


def measure_times(loop: Rehearsal, batches: Iterator[list[Batch]], rounds: int) -> Times:
    """Loading and the step, as the loop waits for both; the middle of a few rounds for each part of the run."""
    begin = time.monotonic()
    taken: list[list[float]] = [[] for _ in range(MOMENTS)]
    for done in range(rounds):
        if done and time.monotonic() - begin > PATIENCE * done / (done + 1):
            break
        for part, step in zip(taken, loop.moments(), strict=True):
            start = time.monotonic()
            loop.step_at(step, next(batches))
            part.append(time.monotonic() - start)
    return Times(tuple(statistics.median(part) for part in taken), *pass_seconds(loop))


def pass_seconds(loop: Rehearsal) -> tuple[float, float, float]:
    """(an evaluation, the probe, the second view) from a pass over a few images.

    An evaluation looks at target, held-out source and a sample of the rest, the probe at all of the source too. The
    time of larger images, for a second ground and a second view, grows with their pixels.
    """
    task, size = loop.task, 2 * loop.task.batch_size
    paths = task.target.paths[:size]
    start = time.monotonic()
    run_pass(loop.method.evaluated, paths, task.preprocessing, size, 0, loop.accelerator.autocast)
    each = (time.monotonic() - start) / len(paths)
    images = len(task.target) + (len(task.holdout) + len(task.source_sample) if len(task.holdout) else 0)
    probe, config = each * (images + len(task.source)), loop.config
    ground, size = ground_size(config, loop.method.model), config.data.image_size
    if ground is not None and len(task.holdout):
        probe += each * (len(task.target) + len(task.holdout)) * (ground / size) ** 2
    larger = second_view_size(config, loop.method.model)
    looked_at = len(task.source) + len(task.holdout) + (len(task.target) if ground is None else 0)
    second_view = each * looked_at * (larger / size) ** 2 if config.method.get("second_view") and larger > size else 0.0
    return each * images, probe, second_view
