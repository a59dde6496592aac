"""Checkpoints are written by a thread: the loop waits for the copy to host memory, not for the disk."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from types import TracebackType

from safetensors import SafetensorError

from pmtrans.run.files import flush
from pmtrans.training.checkpoint import Snapshot, save_snapshot
from pmtrans.training.signals import Interrupted


class Saver:
    """Writes one snapshot at a time; a failure is raised by the next call.

    ``log`` is flushed before a checkpoint appears, so that it is never shorter than what is continued from.
    """

    def __init__(self, folder: Path, keep: int, log: Path | None = None) -> None:
        self.folder, self.keep, self.log = folder, keep, log
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._step = -1

    def save(self, snapshot: Snapshot) -> None:
        """Start writing; returns at once unless the one before is still being written."""
        self.wait()
        if snapshot.step == self._step:
            return
        self._step = snapshot.step
        self._thread = threading.Thread(target=self._write, args=(snapshot,), name="checkpoint", daemon=True)
        self._thread.start()

    def _write(self, snapshot: Snapshot) -> None:
        try:
            if self.log is not None:
                flush(self.log)
            save_snapshot(self.folder, snapshot, self.keep)
        except SafetensorError as error:
            self._failure = as_os_error(error)
        except Exception as error:
            self._failure = error

    def check(self) -> None:
        """Raise what went wrong so far; waits for nothing."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def wait(self) -> None:
        """Until everything handed over is on the disk, or has failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def __enter__(self) -> Saver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """The folder's lock ends after this: nothing may be writing any more, unless the user will not wait."""
        if error is None:
            self.wait()
        elif self._thread is not None and not (isinstance(error, Interrupted) and error.at_once):
            self._thread.join()


def as_os_error(error: SafetensorError) -> OSError:
    """safetensors reports a full disk as an error of its own, with the system's number in its text."""
    number = re.search(r"os error (\d+)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(str(error))
