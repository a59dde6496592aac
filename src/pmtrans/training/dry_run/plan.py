"""What a run will need, before it begins: memory by real steps on real images, time by a few of them on the clock.

Nothing is kept of these steps (``rehearsal``).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import timm
import torch

from pmtrans.config import Config
from pmtrans.data.domains import read_data
from pmtrans.errors import one_line
from pmtrans.machine import choose_device, peak_memory, used_memory
from pmtrans.progress import Reporter
from pmtrans.training.dry_run.proposals import Proposal, number_of_blocks, propose
from pmtrans.training.dry_run.rehearsal import ROUNDS, Memory, Times, measure_memory, measure_times, rehearse
from pmtrans.training.failures import advice, explained_memory
from pmtrans.training.train import has_source_stage, source_stage


@dataclass(frozen=True)
class Plan:
    """The answer of ``--dry-run``; ``times`` None: the batch does not fit, so nothing could be timed."""

    device: str
    backbone: str
    parameters: int
    trainable: int
    batch_size: int
    accumulate: int
    image_size: int
    steps: int
    steps_per_epoch: int
    evaluations: int
    memory: Memory
    times: Times | None
    source_seconds: float | None  # of the source stage, where there is one
    advice: tuple[str, ...]
    processes: int = 2
    proposals: tuple[Proposal, ...] = ()  # where the batch does not fit

    def fitting(self, proposal: Proposal) -> tuple[bool, bool]:
        """Whether it fits in one process, and in each of several: with a GPU each, or with the machine's memory."""
        each = self.memory.available if self.memory.program == 0 else self.memory.available // self.processes
        return proposal.alone.peak <= self.memory.available, proposal.shared.peak <= each

    @property
    def run_seconds(self) -> float | None:
        """The probe, the second view and both trainings, where there is a source stage."""
        if self.times is None:
            return None
        adaptation = self.times.of_run(self.steps, self.evaluations)
        return self.times.probe + self.times.second_view + (self.source_seconds or 0) + adaptation


def make_plan(config: Config, reporter: Reporter, processes: int = 1) -> Plan:
    """Read the data, build the model, take a few steps; nothing is written or downloaded.

    ``processes``: how many the run is meant for; proposals are also for these, or for two.
    """
    config, processes = without_download(config, reporter), max(2, processes)
    data = read_data(config, reporter, decode=False)
    device = choose_device(config.train.device)
    program = used_memory(device)
    with tempfile.TemporaryDirectory() as scratch, explained_memory(config):
        loop = rehearse(config, data, Path(scratch), reporter)
        batches = loop.batches()
        reporter.note(f"Dry run: a step of {loop.task.batch_size} pairs, for its memory.")
        memory, fitting = measure_memory(loop, next(batches), program)
        reporter.note("Dry run: a few steps of the method and passes over some images, for their time.")
        times = measure_times(loop, batches, ROUNDS) if memory.fits else None
        if times is not None:  # an allocator keeps some of what a step has freed, and the next ones add to it
            memory = replace(memory, peak=max(memory.peak, peak_memory(device)))
        steps, epoch, size = loop.steps, loop.epoch, loop.task.batch_size
        numbers = [p.numel() for p in loop.method.parameters()], [p.numel() for p in loop.trainable()]
        every = config.train.evaluate_every or epoch
        source_seconds, proposals = None, tuple[Proposal, ...]()
        if not memory.fits:
            blocks = number_of_blocks(loop.method.model)
            del loop, batches
            reporter.note("Dry run: it does not fit; other settings are tried on smaller batches.")
            proposals = propose(config, data, Path(scratch), size, blocks, processes)
        if times is not None and has_source_stage(config):
            del loop, batches  # its weights are not needed beside the baseline's
            reporter.note("Dry run: a few steps of the source stage.")
            loop = rehearse(source_stage(config), data, Path(scratch), reporter)
            batches = loop.batches()
            loop.step_at(0, next(batches))
            source_seconds = measure_times(loop, batches, rounds=1).of_run(loop.steps, -(-loop.steps // every))
    return Plan(
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        backbone=config.backbone.name.removeprefix("hf-hub:"),
        parameters=sum(numbers[0]),
        trainable=sum(numbers[1]),
        batch_size=size,
        accumulate=config.train.accumulate,
        image_size=config.data.image_size,
        steps=steps,
        steps_per_epoch=epoch,
        evaluations=-(-steps // every),
        memory=memory,
        times=times,
        source_seconds=source_seconds,
        advice=() if memory.fits else tuple(advice(config, fitting)),
        processes=processes,
        proposals=proposals,
    )


def without_download(config: Config, reporter: Reporter) -> Config:
    """The same model with random weights, unless they are in a file here: what a step costs does not depend on them."""
    weights = config.backbone.weights
    if Path(weights).is_file() or weights == "none":
        return config
    changes = {"weights": "none"}
    if weights.startswith("hf-hub:"):  # it names the model too; timm's own repositories are named as its models are
        name = weights.rpartition("/")[2]
        changes["name"] = name if timm.is_model(name.partition(".")[0]) else weights
    elif weights != "timm":
        reporter.warn(f"weights file {one_line(weights)!r} does not exist: the plan can do without it, the run cannot")
    return config.model_copy(update={"backbone": config.backbone.model_copy(update=changes)})
