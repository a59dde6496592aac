"""``model/``: weights and configuration that ``timm.create_model("local-dir:...")`` and ``pmtrans.load`` reopen.

A linear head is stored under timm's own classifier name. An MLP head has no place there: such a model reopens
through ``pmtrans.load`` only.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from pmtrans.backbones.create import create_backbone
from pmtrans.backbones.head import HeadKind
from pmtrans.config import BackboneConfig
from pmtrans.data.transforms import Preprocessing
from pmtrans.errors import ModelError, one_line
from pmtrans.files import is_missing, new_folder, write_json, write_text
from pmtrans.model import Model
from pmtrans.run.model_card import ModelCard, render_card
from pmtrans.run.model_notes import ClassBalance, read_balance, read_unknown
from pmtrans.selection.calibration import read_temperature
from pmtrans.selection.unknown_threshold import UnknownThreshold
from pmtrans.texts import checked, read_json
from pmtrans.version import __version__

_MLP = "pmtrans_head."
MAX_INPUT, MAX_DEPTH, MAX_WIDTH = 8192, 512, 16_384  # beyond every transformer of timm


@dataclass(frozen=True)
class TrainedModel:
    """A model with what is needed to use it."""

    model: Model
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    backbone: BackboneConfig
    temperature: float = 1.0  # of the softmax, calibrated on the source hold-out
    balance: ClassBalance | None = None  # shares of the classes, where they were estimated
    unknown: UnknownThreshold | None = None  # None: every image is of a known class


def save_model(folder: Path, trained: TrainedModel, card: ModelCard | None = None) -> None:
    """Write the folder whole; an older one is replaced. ``card``: what the README says of data and numbers."""
    with new_folder(folder) as temporary:
        tensors = {name: value.detach().cpu().contiguous() for name, value in _tensors(trained.model).items()}
        safetensors.torch.save_file(tensors, temporary / "model.safetensors", metadata={"format": "pt"})
        config = _config(trained)
        write_json(temporary / "config.json", config)
        write_text(temporary / "README.md", render_card(config, card or ModelCard()))


def load_model(folder: Path) -> TrainedModel:
    """Open a model folder again: on the CPU, in evaluation mode."""
    shown = one_line(folder)
    try:
        config = read_json(folder / "config.json", dict[str, Any])
        ours = checked(config["pmtrans"], dict[str, Any])
        temperature = read_temperature(ours)
        classes = tuple(checked(config["pretrained_cfg"]["label_names"], list[str]))
        balance, unknown = read_balance(ours, classes), read_unknown(ours)
        preprocessing: Preprocessing = checked(ours["preprocessing"], Preprocessing)
        backbone = BackboneConfig(name=ours["backbone"], weights="none", options=ours["options"])
        head: HeadKind = checked(ours["head"], HeadKind)
        _refuse_more_than_an_architecture(backbone, preprocessing, classes)
        state = safetensors.torch.load_file(folder / "model.safetensors")
        _refuse_not_finite(state)
    except (FileNotFoundError, PermissionError):  # safetensors has the first for both
        raise ModelError(_not_opened(folder)) from None
    except KeyError as error:
        raise ModelError(f"{shown!r} was not written by pmtrans: config.json has no {error}.") from None
    except (TypeError, AttributeError, ValueError, OSError, SafetensorError) as error:
        raise ModelError(f"{shown!r} cannot be opened: {one_line(error, 150)}") from None
    try:
        built = create_backbone(backbone.name, "none", preprocessing.image_size, backbone.options)
        model = Model(built, len(classes), head)
        _load(model, state)
    except (MemoryError, RuntimeError, KeyError) as error:
        raise ModelError(f"{shown!r}: weights do not fit {backbone.name!r}: {one_line(error, 150)}") from None
    return TrainedModel(model.eval(), classes, preprocessing, backbone, temperature, balance, unknown)


def _refuse_more_than_an_architecture(
    backbone: BackboneConfig, preprocessing: Preprocessing, classes: tuple[str, ...]
) -> None:
    """A model folder that was received names a transformer of timm, of a size that exists, and nothing to fetch."""
    if not re.fullmatch(r"[A-Za-z0-9_]{1,100}", backbone.name):
        raise ValueError(f"config.json: backbone {one_line(backbone.name, 60)!r} is not the name of an architecture")
    if not 8 <= preprocessing.image_size <= preprocessing.resize_to <= MAX_INPUT or len(classes) < 2:
        raise ValueError("config.json: image_size, resize_to or the classes are impossible")
    if not len(preprocessing.mean) == len(preprocessing.std) == 3 or not all(preprocessing.std):
        raise ValueError("config.json: mean and std must be three numbers")
    for key, value in backbone.options.items():
        largest = MAX_DEPTH if "depth" in key else MAX_WIDTH
        numbers = value if isinstance(value, list | tuple) else [value]
        if len(numbers) > 64 or any(isinstance(one, int | float) and not abs(one) <= largest for one in numbers):
            raise ValueError(f"config.json: option {one_line(key, 60)} is impossible")


def _refuse_not_finite(state: dict[str, Tensor]) -> None:
    for name, value in state.items():
        if value.is_floating_point() and not torch.isfinite(value).all():
            raise ValueError(f"model.safetensors: {one_line(name, 60)} holds values that are not finite")


def _not_opened(folder: Path) -> str:
    files = [folder / "config.json", folder / "model.safetensors"]
    missing = [file.name for file in files if is_missing(file)]
    if missing:
        return f"{one_line(folder)!r} is neither a run folder nor a model folder: {missing[0]} is missing."
    locked = next((file.name for file in files if not os.access(file, os.R_OK)), files[1].name)
    return f"{one_line(folder)!r}: {locked} is not readable for this user: its owner can allow it (chmod a+r)."


def _tensors(model: Model) -> dict[str, Tensor]:
    head = model.head.state_dict()
    names = [f"{name}." for name in _classifier_names(model)] if model.head_kind == "linear" else [_MLP]
    placed = {prefix + name: value.clone() for prefix in names for name, value in head.items()}
    return {**model.backbone.timm_state_dict(), **placed}


def _load(model: Model, state: dict[str, Tensor]) -> None:
    prefixes = (*(f"{name}." for name in _classifier_names(model)), _MLP)
    used = f"{_classifier_names(model)[0]}." if model.head_kind == "linear" else _MLP
    head = {name.removeprefix(used): value for name, value in state.items() if name.startswith(used)}
    model.head.load_state_dict(head)
    model.backbone.load_timm_state_dict({n: v for n, v in state.items() if not n.startswith(prefixes)})


def _classifier_names(model: Model) -> list[str]:
    """timm's names of the classifier; a distilled DeiT has two, which the same weights serve."""
    name = model.backbone.trunk.pretrained_cfg.get("classifier") or "head"
    return [name] if isinstance(name, str) else list(name)


def _config(trained: TrainedModel) -> dict[str, Any]:
    model, preprocessing = trained.model, trained.preprocessing
    timm_config = {k: v for k, v in dict(model.backbone.trunk.pretrained_cfg).items() if k in _KEPT}
    size = preprocessing.image_size
    architecture = str(model.backbone.trunk.pretrained_cfg["architecture"])
    return {
        "architecture": architecture,
        "num_classes": len(trained.classes),
        "num_features": model.backbone.features,
        "model_args": {**_size_argument(model.backbone, size), **trained.backbone.options},
        "pretrained_cfg": {
            **timm_config,
            "num_classes": len(trained.classes),
            "input_size": [3, size, size],
            "interpolation": preprocessing.interpolation,
            "crop_pct": _crop_pct(preprocessing),
            "crop_mode": "squash",
            "mean": list(preprocessing.mean),
            "std": list(preprocessing.std),
            "label_names": list(trained.classes),
        },
        "pmtrans": {
            "version": __version__,
            "backbone": architecture,  # not the configured name: that may be a hub's or a folder's
            "options": trained.backbone.options,
            "weights": _origin(trained.backbone.weights),
            "head": model.head_kind,
            "temperature": trained.temperature,
            "preprocessing": asdict(preprocessing),
        },
    }


_KEPT = ("pool_size", "first_conv", "classifier", "license")


def _size_argument(backbone: nn.Module, size: int) -> dict[str, int]:
    """``img_size`` for the models that were built with it (a convolutional stem takes any size without)."""
    default = backbone.trunk.pretrained_cfg.get("input_size", (3, size, size))[-1]  # type: ignore[union-attr, operator]
    takes = hasattr(backbone.stem, "img_size")
    return {"img_size": size} if takes and size != default else {}


def _crop_pct(preprocessing: Preprocessing) -> float:
    """timm resizes to floor(size / crop_pct): the ratio, or the next float below that brings our size back."""
    ratio = preprocessing.crop_ratio
    while math.floor(preprocessing.image_size / ratio) < preprocessing.resize_to:
        ratio = math.nextafter(ratio, 0)
    return ratio


def _origin(weights: str) -> str:
    """Where the starting weights came from; of a local file the name only, as the folder may be published."""
    return weights if weights in ("none", "timm") or weights.startswith("hf-hub:") else Path(weights).name
