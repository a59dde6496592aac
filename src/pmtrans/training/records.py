"""What a run leaves on disk and on the screen while it goes on: metrics, loggers, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import Tensor

from pmtrans.run.metrics import MetricsLog
from pmtrans.training.checkpoint import Snapshot
from pmtrans.training.loggers import open_loggers
from pmtrans.training.progress import Reporter
from pmtrans.training.saver import Saver


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors as numbers; here the host waits for the device."""
    return {name: value.item() if isinstance(value, Tensor) else value for name, value in values.items()}


class Records:
    """Of one training, from ``last_step`` on; the main process has them, the others have none."""

    def __init__(self, folder: Path, keep: int, loggers: Sequence[str], last_step: int, reporter: Reporter) -> None:
        self._log = MetricsLog(folder / "metrics.jsonl", last_step=last_step)
        self._log.listeners += open_loggers(loggers, folder, last_step, reporter.warn)
        self._saver = Saver(folder / "checkpoints", keep, self._log.path)
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
        numbers = plain(values)
        self._log.write(step, numbers)
        self._reporter.values(step, numbers)

    def evaluation(self, step: int, values: Mapping[str, Any]) -> None:
        self._log.write(step, {"event": "evaluation", **values})

    def save(self, snapshot: Snapshot, wait: bool = False) -> None:
        """Written by a thread; ``wait`` until it is on disk."""
        self._saver.save(snapshot)
        if wait:
            self._saver.wait()

    def check(self) -> None:
        """Raise what went wrong while writing."""
        self._saver.check()
