"""What stops a training, said in one line, and what it leaves behind.

A loss or gradient that is not finite; a full or read-only disk; a loader process that was killed; memory that ran out.
"""

from __future__ import annotations

import errno
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from pmtrans.config import Config
from pmtrans.data.batch import Batch
from pmtrans.data.domain import Domain
from pmtrans.data.loader import ANSWER_WITHIN
from pmtrans.errors import StopReportedByMainProcess, TrainingError, is_out_of_memory, one_line
from pmtrans.files import as_os_error, write_json
from pmtrans.machine import choose_device
from pmtrans.run.folder import RunFolder
from pmtrans.training.checkpoint import checkpoints

_ADVICE = [  # the same command would stop at the same step again
    "a new --out with a tenth of train.learning_rate, or with train.warmup_steps=100",
    "train.clip=1.0 limits single bad batches",
    "train.precision=fp32 rules out half precision",
    "pmtrans check --source ... --target ... finds broken images among the ones listed here",
]


@dataclass(frozen=True)
class FiniteGuard:
    """Stops a training before a step that is not finite; the main process leaves behind what explains it."""

    folder: Path
    source: Domain
    target: Domain
    is_main: bool = True

    def check(
        self,
        step: int,
        batches: list[Batch],
        values: Mapping[str, Any],
        rates: Mapping[str, float],
        gradients: Iterable[Tensor] = (),
    ) -> None:
        """Raise unless loss, gradient norm and ``gradients`` are finite; the parameters have not moved yet.

        ``gradients`` are those that the norm leaves out: the ascending players', a few numbers.
        """
        watched = [torch.as_tensor(values[name]).float().detach() for name in ("loss", "gradient_norm")]
        watched += [gradient.float().abs().amax() for gradient in gradients]
        device = watched[0].device
        if bool(torch.stack([value.to(device) for value in watched]).isfinite().all()):  # here the host waits
            return
        path = self.folder / f"not-finite-step-{step:08d}.json"
        message = (
            f"Loss or gradient is not finite at step {step}: stopped before the step, nothing was overwritten. "
            f"See {one_line(path)!r}; try {_ADVICE[0]}."
        )
        if not self.is_main:
            raise StopReportedByMainProcess(message)
        capture = {
            "step": step,
            "values": {name: repr(v.item() if isinstance(v, Tensor) else v) for name, v in values.items()},
            "learning_rates": dict(rates),
            "source_index": [batch.source_index.tolist() for batch in batches],
            "target_index": [batch.target_index.tolist() for batch in batches],
            "source_images": [self.source.paths[i] for batch in batches for i in batch.source_index.tolist()],
            "target_images": [self.target.paths[i] for batch in batches for i in batch.target_index.tolist()],
            "what_to_try": _ADVICE,
        }
        with suppress(OSError):  # on a full disk the reason matters more than the capture
            write_json(path, capture)
        raise TrainingError(message)


@contextmanager
def explained_faults(folder: RunFolder) -> Iterator[None]:
    """Faults of the machine become ``TrainingError``; bugs stay what they are."""
    try:
        yield
    except (ConnectionError, EOFError) as error:  # the loader's pipe ended in the middle of a batch
        traceback.clear_frames(error.__traceback__)
        raise TrainingError(_worker_died(folder)) from None
    except SafetensorError as error:
        raise TrainingError(_not_written(folder, as_os_error(error))) from None
    except OSError as error:
        raise TrainingError(_not_written(folder, error)) from None
    except RuntimeError as error:
        if str(error).startswith("DataLoader worker"):
            traceback.clear_frames(error.__traceback__)  # or torch would report the dead process again, at any time
            raise TrainingError(_worker_died(folder)) from None
        if str(error).startswith("DataLoader timed out"):
            traceback.clear_frames(error.__traceback__)
            raise TrainingError(_worker_silent(folder)) from None
        raise


def _not_written(folder: RunFolder, error: OSError) -> str:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            f"Too many open files; {kept(folder)}. Allow more (ulimit -n) or take fewer data.workers, then give the "
            "same command again."
        )
    return (
        f"Run folder {one_line(folder.path)!r} cannot be written: {one_line(error.strerror or error, 150)}; "
        f"{kept(folder)}. Fix it, then give the same command again."
    )


def _worker_died(folder: RunFolder) -> str:
    return (
        f"A loader process was killed (most often: memory ran out); {kept(folder)}. "
        "Give the same command again, if needed with fewer data.workers."
    )


def _worker_silent(folder: RunFolder) -> str:
    return (
        f"A loader process gave no batch for {ANSWER_WITHIN} s (a disk that does not answer, or a process that hangs); "
        f"{kept(folder)}. Give the same command again, if needed with data.workers=0."
    )


def kept(folder: RunFolder) -> str:
    """The checkpoint to resume from, for a message."""
    newest = [path for stage in folder.stages for path in checkpoints(stage.checkpoints)][-1:]
    return f"checkpoint {one_line(newest[0].relative_to(folder.path))} is whole" if newest else "nothing was saved yet"


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
    where = train.device or choose_device(None).type
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
