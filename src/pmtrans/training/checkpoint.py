"""Everything that a run needs to go on as if nothing had happened: tensors in safetensors, the rest in JSON.

A checkpoint is a folder ``step-00000120`` with ``tensors.safetensors`` and ``state.json``. It appears whole (written
under another name, flushed, renamed) and carries a format version and a checksum of its tensors.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from pmtrans.run.files import new_folder, read_json, write_json

FORMAT = 1


@dataclass
class Snapshot:
    """A run at one moment, in host memory. Data positions and random states are functions of seed and step."""

    step: int  # steps done
    tensors: dict[str, Tensor]
    seconds: float  # wall time used so far, over all sittings
    evaluations: list[dict[str, Any]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"step-{self.step:08d}"


def take_snapshot(
    step: int,
    method: nn.Module,
    optimiser: torch.optim.Optimizer,
    seconds: float,
    evaluations: list[dict[str, Any]],
) -> Snapshot:
    """Copy everything to host memory; the loop may go on as soon as this returns."""
    tensors = {f"method.{name}": _copy(value) for name, value in method.state_dict().items()}
    for group in optimiser.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            for key, value in optimiser.state.get(parameter, {}).items():
                tensors[f"optimiser.{name}.{key}"] = _copy(torch.as_tensor(value))
    return Snapshot(step, tensors, seconds, [dict(evaluation) for evaluation in evaluations])


def _copy(value: Tensor) -> Tensor:
    return value.detach().to("cpu", copy=True).contiguous()


def restore_snapshot(snapshot: Snapshot, method: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Put a snapshot back; every tensor must be there and fit."""
    weights = {n.removeprefix("method."): v for n, v in snapshot.tensors.items() if n.startswith("method.")}
    method.load_state_dict(weights, strict=True)
    for group in optimiser.param_groups:
        for name, parameter in zip(group["names"], group["params"], strict=True):
            prefix = f"optimiser.{name}."
            state = {n.removeprefix(prefix): v for n, v in snapshot.tensors.items() if n.startswith(prefix)}
            if state:  # the step counter of a fused optimiser lives beside its parameter
                optimiser.state[parameter] = {key: value.to(parameter.device) for key, value in state.items()}


def save_snapshot(folder: Path, snapshot: Snapshot, keep: int) -> Path:
    """Write ``folder/step-...`` and drop all but the newest ``keep`` checkpoints."""
    path = folder / snapshot.name
    with new_folder(path) as temporary:
        tensors = temporary / "tensors.safetensors"
        safetensors.torch.save_file(snapshot.tensors, tensors)
        state = {"step": snapshot.step, "seconds": snapshot.seconds, "evaluations": snapshot.evaluations}
        write_json(temporary / "state.json", {"format": FORMAT, "checksum": _checksum(tensors), **state})
    for old in checkpoints(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return path


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir()) if folder.is_dir() else []


class BrokenCheckpoint(ValueError):
    """A checkpoint that is not what was written: cut off, changed, or of another format."""


def load_snapshot(path: Path) -> Snapshot:
    """Read and verify one checkpoint."""
    try:
        state = read_json(path / "state.json")
        if state["format"] != FORMAT:
            raise BrokenCheckpoint(f"its format is {state['format']}, this version reads {FORMAT}")
        tensors_path = path / "tensors.safetensors"
        if _checksum(tensors_path) != state["checksum"]:
            raise BrokenCheckpoint("its checksum does not match: cut off or changed")
        tensors = safetensors.torch.load_file(tensors_path)
        return Snapshot(int(state["step"]), tensors, float(state["seconds"]), list(state["evaluations"]))
    except BrokenCheckpoint:
        raise
    except Exception as error:  # any damage: missing file, half a JSON text, a broken header
        raise BrokenCheckpoint(f"it cannot be read ({type(error).__name__})") from None


def _checksum(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()
