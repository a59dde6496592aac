"""What a run leaves on disk and on the screen while it trains: metrics, checkpoints, and other loggers.

A logger (TensorBoard, Weights & Biases offline, trackio; each an extra) is a listener of ``MetricsLog``: it gets each
line of ``metrics.jsonl`` and nothing else, so what it shows is what the run folder says.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import torch
from torch import Tensor

from pmtrans.errors import ConfigError, one_line
from pmtrans.methods.method import Method
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder
from pmtrans.run.metrics import Listener, MetricsLog
from pmtrans.selection.judge import Judged
from pmtrans.training.checkpoint import Saver, help_snapshot, take_snapshot


def as_numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors as numbers; here the host waits for the device."""
    return {name: value.item() if isinstance(value, Tensor) else value for name, value in values.items()}


class Training(Protocol):
    """What a checkpoint holds of a training: the loop has it."""

    method: Method
    optimiser: torch.optim.Optimizer
    step: int
    seconds: float
    evaluations: list[dict[str, Any]]
    judged: list[Judged]


class Records:
    """Those of one training, from ``last_step`` on, written by the main process."""

    def __init__(self, folder: Path, keep: int, loggers: Sequence[str], last_step: int, reporter: Reporter) -> None:
        self._log = MetricsLog(RunFolder(folder).metrics, last_step=last_step)
        self._log.listeners += open_loggers(loggers, folder, last_step, reporter.warn)
        self._saver = Saver(RunFolder(folder).checkpoints, keep, self._log.path)
        self._reporter = reporter

    def __enter__(self) -> Records:
        self._saver.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._saver.__exit__(kind, error, trace)
        finally:
            self._log.close()

    def step(self, step: int, values: Mapping[str, Any]) -> None:
        """A line of the log, and what the screen shows of it."""
        numbers = as_numbers(values)
        self._log.write(step, numbers)
        self._reporter.values(step, numbers)

    def evaluation(self, step: int, values: Mapping[str, Any]) -> None:
        self._log.write(step, {"event": "evaluation", **values})

    def save(self, training: Training, wait: bool = False) -> None:
        """A checkpoint, written by a thread; ``wait`` until it is on disk."""
        of = training
        self._saver.save(take_snapshot(of.step, of.method, of.optimiser, of.seconds, of.evaluations, of.judged))
        if wait:
            self._saver.wait()

    def check(self) -> None:
        """Raise what went wrong while writing."""
        self._saver.check()


@dataclass(frozen=True)
class NoRecords:
    """What the other processes have: nothing is written, but each gives its part of what is sharded."""

    sharded: bool

    def __enter__(self) -> NoRecords:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def step(self, step: int, values: Mapping[str, Any]) -> None:
        pass

    def evaluation(self, step: int, values: Mapping[str, Any]) -> None:
        pass

    def save(self, training: Training, wait: bool = False) -> None:
        if self.sharded:
            help_snapshot(training.method, training.optimiser)

    def check(self) -> None:
        pass


PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "trackio": "trackio"}  # logger -> what it imports


class TensorBoard:
    """Event files in ``FOLDER/tensorboard``; what a continued run does again is purged."""

    def __init__(self, folder: Path, last_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=last_step + 1 if last_step else None)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name.replace(".", "/"), value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """``FOLDER/wandb``, to be sent by ``wandb sync`` when its owner wants to; ``WANDB_MODE=online`` sends at once."""

    def __init__(self, folder: Path, last_step: int) -> None:
        wandb = importlib.import_module("wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "pmtrans"),
            name=run_name(folder),
            dir=str(folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            reinit="finish_previous",
            settings=wandb.Settings(silent=True),
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class Trackio:
    """trackio's own local store; ``trackio show --project pmtrans`` opens it."""

    def __init__(self, folder: Path, last_step: int) -> None:
        trackio = importlib.import_module("trackio")
        self._run = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", "pmtrans"), name=run_name(folder), resume="allow", embed=False
        )
        self._finish: Callable[[], None] = trackio.finish

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._finish()


_LOGGERS: dict[str, Callable[[Path, int], Listener]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
}


def run_name(folder: Path) -> str:
    """The run's own name; the baseline inside a run is named after both."""
    folder = folder.resolve()
    earlier = {stage.path.name for stage in RunFolder(folder.parent).stages[:-1]}
    return f"{folder.parent.name}-{folder.name}" if folder.name in earlier else folder.name


def refuse_missing(names: Sequence[str]) -> None:
    """Said before the first step: training for hours and then failing to log would be worse."""
    for name in names:
        try:
            importlib.import_module(PACKAGES[name])
        except ImportError:
            raise ConfigError(
                f"train.loggers names {name!r}, which is not installed: pip install 'pmtrans[{name}]'."
            ) from None


def open_loggers(names: Sequence[str], folder: Path, last_step: int, warn: Callable[[str], None]) -> list[Listener]:
    """The loggers of one training after ``last_step``; one that fails is reported and left out."""
    return [_Forgiving(name, folder, last_step, warn) for name in dict.fromkeys(names)]


class _Forgiving:
    """metrics.jsonl has everything: a logger that breaks on the way is no reason to stop a training."""

    def __init__(self, name: str, folder: Path, last_step: int, warn: Callable[[str], None]) -> None:
        self._name, self._warn = name, warn
        self._logger: Listener | None = None
        self._try(lambda: setattr(self, "_logger", _LOGGERS[name](folder, last_step)))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if (logger := self._logger) is not None:
            self._try(lambda: logger.write(step, values))

    def close(self) -> None:
        if (logger := self._logger) is not None:
            self._try(logger.close)

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # whatever a third party's client raises
            self._logger = None
            self._warn(f"logger {self._name} failed and is left out from here on: {one_line(error, 150)}")
