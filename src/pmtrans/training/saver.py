"""Checkpoints are written by a thread: the loop waits for the copy to host memory, not for the disk."""

from __future__ import annotations

import threading
from pathlib import Path

from pmtrans.errors import TrainingError, one_line
from pmtrans.training.checkpoint import Snapshot, checkpoints, save_snapshot


class Saver:
    """Writes one snapshot at a time; a failure is reported at the next call."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self.keep = keep
        self._thread: threading.Thread | None = None
        self._failure: OSError | None = None

    def save(self, snapshot: Snapshot) -> None:
        """Start writing; returns at once unless the one before is still being written."""
        self.wait()
        self._thread = threading.Thread(target=self._write, args=(snapshot,), name="checkpoint")
        self._thread.start()

    def _write(self, snapshot: Snapshot) -> None:
        try:
            save_snapshot(self.folder, snapshot, self.keep)
        except OSError as error:
            self._failure = error
        except Exception as error:  # safetensors reports a full disk as an error of its own
            self._failure = OSError(str(error))

    def wait(self) -> None:
        """Until everything handed over is on the disk, or has failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            older = checkpoints(self.folder)
            kept = f"the checkpoint {older[-1].name} before it is whole" if older else "there is none before it"
            raise TrainingError(
                f"A checkpoint could not be written to {one_line(self.folder)!r}: "
                f"{one_line(failure.strerror or failure, 150)}; {kept}."
            )
