"""Everything that a run needs to be resumed exactly: tensors in safetensors, the rest in JSON.

A checkpoint is a folder ``step-00000120`` with ``tensors.safetensors`` and ``state.json``. It appears whole (written
under another name, flushed, renamed) and carries a format version and a checksum of all that is in it.

Checkpoints are written by a thread: the loop waits for the copy to host memory, not for the disk.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from pmtrans.errors import RunError, one_line
from pmtrans.files import as_os_error, flush, new_folder, regular, write_json
from pmtrans.processes.sharding import part_like, whole
from pmtrans.selection.judge import Judged
from pmtrans.signals import Interrupted
from pmtrans.texts import TextError, checked, read_json

FORMAT = 2  # 2: the judge's scores by themselves, with checksums of what was kept


@dataclass
class Snapshot:
    """A run at one moment, in host memory. Data positions and random states are functions of seed and step."""

    step: int  # steps done
    tensors: dict[str, Tensor]
    seconds: float  # wall time used so far, over all sessions of a run
    evaluations: list[dict[str, Any]] = field(default_factory=list)  # as logged, an oracle's numbers among them
    judged: list[Judged] = field(default_factory=list)  # what the choice of a model may depend on

    @property
    def name(self) -> str:
        return f"step-{self.step:08d}"


def take_snapshot(
    step: int,
    method: nn.Module,
    optimiser: torch.optim.Optimizer,
    seconds: float,
    evaluations: Sequence[dict[str, Any]],
    judged: Sequence[Judged] = (),
) -> Snapshot:
    """Copy everything to host memory; the loop may continue as soon as this returns."""
    tensors = {name: _copy(whole(value)) for name, value in _everything(method, optimiser)}
    return Snapshot(step, tensors, seconds, [dict(evaluation) for evaluation in evaluations], list(judged))


def help_snapshot(method: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """What the other processes do while one takes a snapshot: they give it their parts of what is sharded."""
    for _, value in _everything(method, optimiser):
        whole(value)


def _everything(method: nn.Module, optimiser: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    yield from ((f"method.{name}", value) for name, value in method.state_dict().items())
    for group in optimiser.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            for key, value in optimiser.state.get(parameter, {}).items():
                yield f"optimiser.{name}.{key}", torch.as_tensor(value)


def _copy(value: Tensor) -> Tensor:
    return value.detach().to("cpu", copy=True).contiguous()


def restore_snapshot(snapshot: Snapshot, method: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Put a snapshot back; every tensor must be there and fit."""
    own = method.state_dict()
    weights = {n.removeprefix("method."): v for n, v in snapshot.tensors.items() if n.startswith("method.")}
    weights = {n: part_like(v, own[n]) if n in own else v for n, v in weights.items()}
    try:
        method.load_state_dict(weights, strict=True)
    except RuntimeError as error:
        raise RunError(
            f"Checkpoint {snapshot.name} does not fit the model that this version builds "
            f"({one_line(error, 150)}): resume with the version that wrote it, or choose another --out."
        ) from None
    for group in optimiser.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            prefix = f"optimiser.{name}."
            state = {n.removeprefix(prefix): v for n, v in snapshot.tensors.items() if n.startswith(prefix)}
            if state:  # copied: what was loaded is still mapped to the file
                _refuse_misfit(snapshot, name, state, parameter)
                state = {k: v.to(parameter.device, copy=True) for k, v in state.items()}
                optimiser.state[parameter] = {k: part_like(v, parameter) for k, v in state.items()}


def _refuse_misfit(snapshot: Snapshot, name: str, state: dict[str, Tensor], parameter: Tensor) -> None:
    """AdamW's state of a parameter: its step, and two averages of the parameter's shape."""
    averages = {key: value for key, value in state.items() if key != "step"}
    if state.keys() != {"step", "exp_avg", "exp_avg_sq"} or any(v.shape != parameter.shape for v in averages.values()):
        raise RunError(
            f"Checkpoint {snapshot.name} does not fit the model that this version builds (optimiser of "
            f"{one_line(name, 80)}): resume with the version that wrote it, or choose another --out."
        )


def save_snapshot(folder: Path, snapshot: Snapshot, keep: int) -> Path:
    """Write ``folder/step-...``, then drop all but the ``keep`` latest up to it."""
    path = folder / snapshot.name
    with new_folder(path) as temporary:
        safetensors.torch.save_file(snapshot.tensors, temporary / "tensors.safetensors")
        state = {
            "format": FORMAT,
            "step": snapshot.step,
            "seconds": snapshot.seconds,
            "evaluations": snapshot.evaluations,
            "judged": [asdict(judged) for judged in snapshot.judged],
        }
        write_json(temporary / "state.json", {**state, "checksum": _checksum(temporary, state)})
    done = [old for old in checkpoints(folder) if old.name <= path.name]  # a later one was broken, and skipped
    for old in done[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return path


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir()) if folder.is_dir() else []


class BrokenCheckpoint(ValueError):
    """A checkpoint that is not what was written: cut off or changed."""


def load_snapshot(path: Path) -> Snapshot:
    """Read and verify one checkpoint; one of another format is whole, and refused."""
    try:
        state = read_json(path / "state.json")
        version = state["format"]
        if version == FORMAT:
            checksum = state.pop("checksum")
            if _checksum(path, state) != checksum:
                raise BrokenCheckpoint("its checksum does not match: cut off or changed")
            tensors = safetensors.torch.load_file(regular(path / "tensors.safetensors"))
            judged = checked(state["judged"], list[Judged])
            evaluations = _checked_evaluations(state["evaluations"])
            return Snapshot(int(state["step"]), tensors, float(state["seconds"]), evaluations, judged)
    except BrokenCheckpoint:
        raise
    except Exception as error:  # any damage: missing file, half a JSON text, a broken header
        reason = error if isinstance(error, TextError) else type(error).__name__
        raise BrokenCheckpoint(f"it cannot be read ({reason})") from None
    raise RunError(
        f"Checkpoint {one_line(path)!r} has format {one_line(version, 20)}, this version of pmtrans reads {FORMAT}: "
        "resume with the version that wrote it, or choose another --out."
    )


def _checked_evaluations(stored: Any) -> list[dict[str, Any]]:
    """Each has its step, and scores that are numbers or None."""
    evaluations: list[dict[str, Any]] = checked(stored, list[dict[str, Any]])
    for entry in evaluations:
        checked(entry["step"], int)
        checked({key: value for key, value in entry.items() if key.startswith("score.")}, dict[str, float | None])
    return evaluations


def _checksum(folder: Path, state: dict[str, Any]) -> str:
    """Over the tensors' file and the state as it stands in JSON."""
    digest = hashlib.blake2b(json.dumps(state, sort_keys=True).encode(), digest_size=16)
    with regular(folder / "tensors.safetensors").open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


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
