"""Memory that ran out, said in one line: what was tried, and what to change."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pmtrans.config import Config
from pmtrans.errors import TrainingError, is_out_of_memory, one_line
from pmtrans.run.folder import RunFolder
from pmtrans.training.faults import kept


class OutOfMemory(TrainingError):
    """The device's memory, or the machine's, was not enough."""


@contextmanager
def explained_memory(config: Config, folder: RunFolder | None = None) -> Iterator[None]:
    """An error that means it becomes ``OutOfMemory``; ``folder`` is the run whose checkpoints are named."""
    try:
        yield
    except (MemoryError, RuntimeError, OSError) as error:
        if not is_out_of_memory(error):
            raise
        traceback.clear_frames(error.__traceback__)  # or the tensors of the step that failed would live on in it
        saved = f" {kept(folder).capitalize()}." if folder is not None else ""
        raise OutOfMemory(f"Out of memory with {tried(config)}.{saved} Try {'; or '.join(advice(config))}.") from None


def tried(config: Config) -> str:
    """The settings that memory depends on."""
    train, data = config.train, config.data
    where = "cuda" if torch.cuda.is_available() else "cpu"
    return (
        f"train.batch_size={train.batch_size} (pairs), data.image_size={data.image_size}, "
        f"backbone.name={one_line(config.backbone.name, 80)} on {where}"
    )


def advice(config: Config, batch_size: int | None = None) -> list[str]:
    """What lowers the need for memory, the mildest first; ``batch_size``: one that was found to fit."""
    train, said = config.train, []
    if not (train.checkpoint_activations or train.compile):
        said.append("the same command with train.checkpoint_activations=true (same results, a third more time)")
    smaller = batch_size or train.batch_size // 2
    if 0 < smaller < train.batch_size:
        times = -(-train.batch_size * train.accumulate // smaller)
        cached = "" if train.compile else " train.accumulation=cached"
        said.append(f"in a new --out train.batch_size={smaller} train.accumulate={times}{cached}")
    said.append("a smaller data.image_size or backbone.name")
    if batch_size is None:
        said.append("--dry-run, which measures what fits")
    return said
