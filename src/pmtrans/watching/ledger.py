"""The table of a watch, to which every image is added exactly once, whatever happens to the process.

``predictions.csv`` and ``windows.csv`` only grow. ``state.safetensors`` is replaced whole after each batch and says how
long both are, and which features wait for their window to fill: what lies beyond was not committed, and is cut off and
done again.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from pmtrans.errors import RunError, UserError, one_line
from pmtrans.files import refuse_foreign, regular, run_lock, write_atomically
from pmtrans.inference.output import CsvWriter, Row, columns
from pmtrans.texts import Count, Number, parse_json
from pmtrans.watching.drift import can_be_compared

WINDOWS = ["window", "first", "last", "mmd", "p_value", "drift", "confidence"]


@dataclass
class Counts:
    """What is committed: bytes of both tables, images, windows, and which of the last windows drifted."""

    identity: str
    window: Count
    false_alarms: Number
    table_bytes: Count = 0
    windows_bytes: Count = 0
    images: Count = 0
    unreadable: Count = 0
    windows: Count = 0
    latest: list[bool] = field(default_factory=list)


class Ledger:
    """An open watch folder."""

    def __init__(self, folder: Path, counts: Counts, waiting: dict[str, Tensor] | None, names: list[str]) -> None:
        """``names``: the columns of predictions."""
        self.folder, self.counts, self.names = folder, counts, names
        self.features_VF = torch.empty(0) if waiting is None else waiting["features"]
        self.confidence_V = torch.empty(0, dtype=torch.float64) if waiting is None else waiting["confidence"]
        self._tables = {name: _cut(folder / name, size) for name, size in self._sizes().items()}
        if not counts.table_bytes:
            self._append("predictions.csv", _header(names))
            self._append("windows.csv", ",".join(WINDOWS) + "\n")
            self.commit()
        self.done = self._read_paths()

    def _sizes(self) -> dict[str, int]:
        return {"predictions.csv": self.counts.table_bytes, "windows.csv": self.counts.windows_bytes}

    def add(self, rows: Sequence[Row], features_BF: Tensor, confidence_B: Tensor) -> None:
        """Rows of a batch, and what of it was readable; nothing counts before ``commit``."""
        self._append("predictions.csv", _as_csv(rows, self.names))
        self.features_VF = torch.cat([self.features_VF, features_BF])
        self.confidence_V = torch.cat([self.confidence_V, confidence_B.double()])
        self.counts.images += len(rows)
        self.counts.unreadable += sum(row["error"] is not None for row in rows)
        self.done.update(row["path"] for row in rows)

    def take_window(self) -> tuple[Tensor, float] | None:
        """The features and the mean confidence of the next full window; None: it is not full yet."""
        size = self.counts.window
        if len(self.features_VF) < size:
            return None
        taken = self.features_VF[:size], float(self.confidence_V[:size].mean())
        self.features_VF, self.confidence_V = self.features_VF[size:], self.confidence_V[size:]
        return taken

    def add_window(self, row: dict[str, Any]) -> None:
        self._append("windows.csv", ",".join(str(row[name]) for name in WINDOWS) + "\n")
        self.counts.windows += 1
        self.counts.latest = [*self.counts.latest, bool(row["drift"] == "true")][-3:]

    def commit(self) -> None:
        """From here on, all that was added counts."""
        for file in self._tables.values():
            file.flush()
            os.fsync(file.fileno())
        self.counts.table_bytes, self.counts.windows_bytes = (file.tell() for file in self._tables.values())
        tensors = {"features": self.features_VF.contiguous(), "confidence": self.confidence_V.contiguous()}
        described = {"watch": json.dumps(asdict(self.counts))}
        state = self.folder / "state.safetensors"
        write_atomically(state, lambda path: safetensors.torch.save_file(tensors, path, metadata=described))

    def _append(self, name: str, text: str) -> None:
        self._tables[name].write(text.encode("utf-8", "surrogateescape"))

    def _read_paths(self) -> set[str]:
        with (self.folder / "predictions.csv").open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            rows = csv.DictReader(file)
            try:
                if list(rows.fieldnames or ()) == self.names:
                    return {row["path"] for row in rows}
            except csv.Error:
                pass
        raise RunError(
            f"{one_line(self.folder)!r} cannot be resumed (predictions.csv was changed): choose another --out."
        )

    def close(self) -> None:
        for file in self._tables.values():
            file.close()


@contextmanager
def open_ledger(
    folder: Path, identity: str, window: int, false_alarms: float, is_open: bool = False, width: int | None = None
) -> Iterator[Ledger]:
    """The folder for this process alone. A folder of another model, or other settings, is refused.

    ``is_open``: whether the model knows images of no class, whose score has a column then. ``width``: of the features
    that wait.
    """
    names = columns(1, is_open)
    refuse_foreign(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{one_line(folder)!r} cannot be made: {error.strerror}.") from None
    for name in ("predictions.csv", "windows.csv", "state.safetensors", "reference.safetensors"):
        refuse_foreign(folder / name)
    with run_lock(folder):
        counts, waiting = Counts(identity, window, false_alarms), None
        if (folder / "state.safetensors").is_file():
            counts, waiting = _read_state(folder)
            for name, now in (("identity", identity), ("window", window), ("false_alarms", false_alarms)):
                if getattr(counts, name) != now:
                    what = "the model of another run" if name == "identity" else f"another {name.replace('_', ' ')}"
                    raise RunError(f"{one_line(folder)!r} was begun with {what}: choose another --out.")
            _refuse_misfit(folder, waiting, width)
        elif not _is_unused(folder / "predictions.csv", _header(names)):
            raise RunError(f"{one_line(folder)!r} has a predictions.csv of something else: choose another --out.")
        ledger = Ledger(folder, counts, waiting, names)
        try:
            yield ledger
        finally:
            ledger.close()


def _read_state(folder: Path) -> tuple[Counts, dict[str, Tensor]]:
    path = folder / "state.safetensors"
    try:
        with safetensors.safe_open(regular(path), framework="pt") as file:
            counts: Counts = parse_json(file.metadata()["watch"], Counts)
            waiting = {name: file.get_tensor(name) for name in ("features", "confidence")}
        sizes = {"predictions.csv": counts.table_bytes, "windows.csv": counts.windows_bytes}
        if short := [name for name, size in sizes.items() if (folder / name).stat().st_size < size]:
            raise UserError(f"{short[0]} was shortened")
        return counts, waiting
    except (OSError, SafetensorError, UserError, KeyError, TypeError) as error:
        raise RunError(
            f"{one_line(folder)!r} cannot be resumed ({one_line(error, 100)}): choose another --out."
        ) from None


def _refuse_misfit(folder: Path, waiting: dict[str, Tensor], width: int | None) -> None:
    """What waits are finite features of the model, and a confidence of each; at first both are empty."""
    features_VF, confidence_V = waiting["features"], waiting["confidence"]
    if not features_VF.numel() and not confidence_V.numel():
        return
    fits = can_be_compared(features_VF, features_VF.shape[-1] if width is None else width)
    sure = confidence_V.shape == features_VF.shape[:1] and bool(((confidence_V >= 0) & (confidence_V <= 1)).all())
    if not fits or not sure:
        raise RunError(f"{one_line(folder)!r} cannot be resumed (state.safetensors was changed): choose another --out.")


def _is_unused(table: Path, header: str) -> bool:
    """Whether there is no table, or the beginning of one that was never committed."""
    try:
        return header.encode().startswith(table.read_bytes()) if table.stat().st_size <= len(header) else False
    except FileNotFoundError:
        return True


def _cut(path: Path, size: int) -> io.BufferedRandom:
    file = path.open("ab+")
    file.truncate(size)
    file.seek(0, os.SEEK_END)
    return file


def _header(names: Sequence[str]) -> str:
    return ",".join(names) + "\n"


def _as_csv(rows: Sequence[Row], names: list[str]) -> str:
    text = io.StringIO(newline="")
    CsvWriter(text, names).write(rows)
    return text.getvalue().removeprefix(_header(names))
