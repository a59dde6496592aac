"""Weights from files, loaded without executing code in them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import safetensors.torch
import timm
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from pmtrans.errors import ModelError, one_line

_WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model")  # keys under which checkpoints nest their weights


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors or pth file; a pickle with anything but tensors is refused."""
    shown = one_line(path)
    if not path.is_file():
        raise ModelError(f"Weights file {shown!r} does not exist.")
    try:
        if path.suffix == ".safetensors":
            return dict(safetensors.torch.load_file(path))
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, EOFError, OSError, RuntimeError, ValueError, KeyError) as error:
        raise ModelError(f"Weights file {shown!r} cannot be read: {one_line(error, 150)}") from None
    except Exception as error:  # the unpickler's refusal: its type is not part of torch's public interface
        raise ModelError(
            f"Weights file {shown!r} was refused: it holds more than tensors "
            f"({one_line(str(error).splitlines()[0], 120)}). Save it as safetensors."
        ) from None
    for key in _WRAPPERS:
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
            break
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise ModelError(f"Weights file {shown!r} does not hold a state dict of tensors.")
    return {name.removeprefix("module."): value for name, value in loaded.items()}


def load_weights(model: Any, path: Path) -> None:
    """Load a file into a timm model without classifier: all names and shapes must match.

    Before that, timm's filter for the model's family resamples position embeddings and renames other formats, and the
    classifier in the file is dropped.
    """
    state = read_state_dict(path)
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    misfit = f"Weights file {one_line(path)!r} does not fit backbone {_name(model)!r}"
    try:
        state = convert(state, model) if convert else state
    except (KeyError, RuntimeError, ValueError, AttributeError, IndexError) as error:
        raise ModelError(f"{misfit}: {one_line(error, 150)}.{_hint(path, model)}") from None
    classifier = model.pretrained_cfg.get("classifier") or "head"
    heads = tuple(f"{name}." for name in ([classifier] if isinstance(classifier, str) else classifier))
    state = {name: value for name, value in state.items() if not name.startswith(heads)}
    own = model.state_dict()
    mismatched = [
        f"{name} is {tuple(state[name].shape)}, not {tuple(value.shape)}"
        for name, value in own.items()
        if name in state and state[name].shape != value.shape
    ]
    needed = {name for name, _ in model.named_parameters()}
    missing = sorted(name for name in needed if name not in state)
    unknown = sorted(name for name in state if name not in own)
    if mismatched or missing or unknown:
        kinds = [("wrong shape", mismatched), ("missing", missing), ("unknown", unknown)]
        problems = "; ".join(f"{len(names)} {kind} (such as {names[0]})" for kind, names in kinds if names)
        raise ModelError(f"{misfit}: {problems}.{_hint(path, model)}")
    model.load_state_dict(state, strict=False)


def _hint(path: Path, model: nn.Module) -> str:
    """The architecture after which the file is called, where it is another."""
    called = re.split(r"[.-]", path.name)[0]
    return f" By its name it is for --backbone {called}." if timm.is_model(called) and called != _name(model) else ""


def _name(model: nn.Module) -> str:
    config: Any = getattr(model, "pretrained_cfg", {})
    return str(config.get("architecture", type(model).__name__))
