"""What fits where a run does not: combinations of the settings that save memory, each tried on small batches.

Where small steps say that the whole batch fits easily, it is taken too. Else they tell its memory and time, and those
of each process where several share it: both grow linearly with the pairs, but for what an allocator keeps.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pmtrans.backbones.blocks import transformer_blocks
from pmtrans.config import Config
from pmtrans.data.batch import Batch
from pmtrans.data.domains import Data
from pmtrans.errors import ModelError, UserError
from pmtrans.machine import begin_peak, peak_memory, return_freed_memory
from pmtrans.model import Model
from pmtrans.progress import Reporter
from pmtrans.training.dry_run.rehearsal import Rehearsal, first_pairs, rehearse

RANK = 8  # of the adapters that are proposed
PIECES = 4  # micro-batches that a cached batch is divided into
ROOM, NEARLY_ALL = 0.6, 0.9  # of the available memory: up to where the whole batch is tried, and a part of it


@dataclass(frozen=True)
class Need:
    """Of a step, in one process: bytes at its peak, and seconds."""

    peak: int
    seconds: float


@dataclass(frozen=True)
class Proposal:
    """Settings, and what a step needs with them: in one process, and in each of several that share the batch."""

    settings: tuple[str, ...]
    alone: Need
    shared: Need


def propose(
    config: Config, data: Data, scratch: Path, batch_size: int, blocks: int, processes: int
) -> tuple[Proposal, ...]:
    """Every combination that this backbone can have, the mildest first; ``processes``: how many would share a batch."""
    found = []
    for changes in combinations(config, batch_size, blocks):
        tried = config.model_copy(update={"train": config.train.model_copy(update=changes)})
        _forget_the_last_one()
        try:
            alone, shared = _measure(rehearse(tried, data, scratch, Reporter(quiet=True)), processes)
        except UserError:  # this backbone cannot have it, or not even the smallest batch fits
            continue
        found.append(Proposal(tuple(_written(name, value) for name, value in changes.items()), alone, shared))
    return tuple(found)


def combinations(config: Config, batch_size: int, blocks: int) -> list[dict[str, Any]]:
    """Changes of ``train``. The first ones keep the results as they are, the last one saves most."""
    train, pieces = config.train, min(PIECES, batch_size)
    recomputed = {"checkpoint_activations": True}
    cached = {"batch_size": batch_size // pieces, "accumulate": train.accumulate * pieces, "accumulation": "cached"}
    frozen, adapters = {"freeze_blocks": blocks // 2}, {"lora": RANK}
    tried: list[dict[str, Any]] = [
        {**recomputed},
        {**cached},
        {**recomputed, **cached},
        {**adapters},
        {**frozen},
        {**adapters, **recomputed},
        {**frozen, **adapters, **recomputed, **cached},
    ]
    if train.compile:  # decides itself what to recompute
        tried = [adapters, frozen, {**adapters, **frozen}]
    tried = [{key: value for key, value in one.items() if getattr(train, key) != value} for one in tried]
    return [one for number, one in enumerate(tried) if one and one not in tried[:number]]


def number_of_blocks(model: Model) -> int:
    """0 for a backbone without blocks in sequence: none can be frozen."""
    try:
        return len(transformer_blocks(model.backbone))
    except ModelError:
        return 0


def _forget_the_last_one() -> None:
    """Its weights and activations would be in the next one's peak."""
    gc.collect()
    return_freed_memory()


def _measure(loop: Rehearsal, processes: int) -> tuple[Need, Need]:
    """(in one process, in each of ``processes``) from a few steps that grow while they fit.

    Two of each size: the first also waits for its memory, and the second finds what an allocator keeps of the first.
    """
    device, step = loop.accelerator.device, loop.moments()[-1]
    micro = next(loop.batches())
    whole = loop.task.batch_size
    few = max(1, whole // 8)
    loop.passes.target()

    def take(pairs: int) -> tuple[int, float]:
        """The peak of two steps, and the seconds of the second."""
        begin_peak(device)
        for _ in range(2):
            begin = time.monotonic()
            loop.step_at(step, [first_pairs(batch, pairs) for batch in micro])
        return peak_memory(device), time.monotonic() - begin

    take(few)  # makes gradients and the optimiser's state
    peaks: list[tuple[int, int]] = []
    seconds = 0.0
    for pairs in (few, 2 * few, whole, 4 * few):
        fills = ROOM if pairs == whole else NEARLY_ALL
        too_large = len(peaks) > 1 and line_at(peaks, pairs) > fills * loop.available()
        if (peaks and pairs <= peaks[-1][0]) or pairs > whole or too_large:
            continue
        peak, seconds = take(pairs)
        peaks.append((pairs, peak))
    each, share = seconds / peaks[-1][0], whole / processes
    beside = _of_a_group(loop, micro, processes)
    return Need(line_at(peaks, whole), each * whole), Need(line_at(peaks, share) + beside, each * share)


def line_at(peaks: list[tuple[int, int]], pairs: float) -> int:
    """Of (pairs, bytes) the line through the last two, or the only one; it never falls."""
    (few, less), (more, most) = peaks[max(0, len(peaks) - 2)], peaks[-1]
    return most if few == more else int(most + (pairs - more) / (more - few) * max(0, most - less))


def _of_a_group(loop: Rehearsal, micro: list[Batch], processes: int) -> int:
    """What a process has beside its share: the gradients as DDP exchanges them, and the other processes' images."""
    if processes == 1:
        return 0
    images = sum(batch.source_images.nbytes + batch.target_images.nbytes for batch in micro)
    return sum(parameter.nbytes for parameter in loop.trainable()) + images * (processes - 1) // processes


def _written(name: str, value: Any) -> str:
    return f"train.{name}={str(value).lower() if isinstance(value, bool) else value}"
