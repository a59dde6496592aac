"""``model/``: weights and configuration that ``timm.create_model("local-dir:...")`` and ``pmtrans.load`` reopen.

A linear head on timm's own features is stored under timm's own classifier name. Any other head, and one behind a
bottleneck, has no place there: such a model reopens through ``pmtrans.load`` only. Both files have a checksum in the
configuration (``checksums.py``).
"""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import safetensors.torch
import torch
from pydantic import Field
from safetensors import SafetensorError
from torch import Tensor, nn

from pmtrans.backbones.create import MAX_WIDTH, create_backbone, outline_backbone
from pmtrans.backbones.head import HeadKind
from pmtrans.config import BackboneConfig
from pmtrans.data.transforms import Preprocessing
from pmtrans.errors import ModelError, one_line
from pmtrans.files import is_missing, new_folder, regular, write_json, write_text
from pmtrans.model import Model
from pmtrans.run.checksums import ChangedError, of_weights, verify_config, verify_weights, with_checksum
from pmtrans.run.misfit import refuse_misfit
from pmtrans.run.model_card import ModelCard, render_card
from pmtrans.run.model_notes import ClassBalance, read_balance, read_unknown
from pmtrans.selection.calibration import read_temperature
from pmtrans.selection.unknown_threshold import UnknownThreshold
from pmtrans.texts import checked, read_json
from pmtrans.version import __version__

_HEAD, _BOTTLENECK = "pmtrans_head.", "pmtrans_bottleneck."
Architecture = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,100}$")]  # of timm, and nothing to fetch
Bottleneck = Annotated[int, Field(ge=0, le=MAX_WIDTH)]
Names = Annotated[list[str], Field(min_length=2)]


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
        config = with_checksum(_config(trained), of_weights(temporary))
        write_json(temporary / "config.json", config)
        write_text(temporary / "README.md", render_card(config, card or ModelCard()))


def load_model(folder: Path) -> TrainedModel:
    """Open a model folder again: on the CPU, in evaluation mode."""
    shown = one_line(folder)
    try:
        config = read_json(folder / "config.json", dict[str, Any])
        expected = verify_config(folder, config)
        ours = checked(config["pmtrans"], dict[str, Any])
        temperature = read_temperature(ours)
        classes = tuple(checked(config["pretrained_cfg"]["label_names"], Names, "label_names"))
        balance, unknown = read_balance(ours, classes), read_unknown(ours)
        preprocessing: Preprocessing = checked(ours["preprocessing"], Preprocessing, "preprocessing")
        backbone, head = _read_backbone(ours), checked(ours["head"], HeadKind, "head")
        verify_weights(folder, expected)
        state = _read_weights(folder, backbone, preprocessing, len(classes), head)
    except ChangedError:
        raise
    except (FileNotFoundError, PermissionError):  # safetensors has the first for both
        raise ModelError(_not_opened(folder)) from None
    except KeyError as error:
        raise ModelError(f"{shown!r} was not written by pmtrans: config.json has no {error}.") from None
    except (TypeError, AttributeError, ValueError, OSError, SafetensorError) as error:
        raise ModelError(f"{shown!r} cannot be opened: {one_line(error, 200)}") from None
    try:
        shape = backbone.bottleneck, backbone.distillation_token
        built = create_backbone(backbone.name, "none", preprocessing.image_size, backbone.options, *shape)
        model = Model(built, len(classes), head)
        _load(model, state)
    except (MemoryError, RuntimeError, KeyError) as error:
        raise ModelError(f"{shown!r}: weights do not fit {backbone.name!r}: {one_line(error, 150)}") from None
    return TrainedModel(model.eval(), classes, preprocessing, backbone, temperature, balance, unknown)


def _read_backbone(section: dict[str, Any]) -> BackboneConfig:
    return BackboneConfig(
        name=checked(section["backbone"], Architecture, "backbone"),
        weights="none",
        options=checked(section["options"], dict[str, Any], "options"),
        bottleneck=checked(section.get("bottleneck", 0), Bottleneck, "bottleneck"),
        distillation_token=checked(section.get("distillation_token", True), bool, "distillation_token"),
    )


def _read_weights(
    folder: Path, backbone: BackboneConfig, preprocessing: Preprocessing, classes: int, head: HeadKind
) -> dict[str, Tensor]:
    """All tensors of the file, once their shapes are those of the architecture, which is not built before."""
    file, shape = regular(folder / "model.safetensors"), (backbone.bottleneck, backbone.distillation_token)
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        outline = outline_backbone(backbone.name, preprocessing.image_size, backbone.options, *shape)
        model = Model(outline, classes, head)
    refuse_misfit(file, model, _tensors(model), _ignored(model))
    state = safetensors.torch.load_file(file)
    _refuse_not_finite(state)
    return state


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
    tensors = model.backbone.timm_state_dict()
    if not _is_timm(model):
        bottleneck = {} if model.backbone.bottleneck is None else model.backbone.bottleneck.state_dict()
        ours = {_HEAD: head, _BOTTLENECK: bottleneck}
        return tensors | {prefix + name: value for prefix, part in ours.items() for name, value in part.items()}
    for place, shares in zip(_classifier_names(model), _shares(model), strict=True):
        tensors |= {f"{place}.{name}": value * shares for name, value in head.items()}
    return tensors


def _load(model: Model, state: dict[str, Tensor]) -> None:
    used, share = (f"{_classifier_names(model)[0]}.", _shares(model)[0]) if _is_timm(model) else (_HEAD, None)
    head = _part(state, used)
    model.head.load_state_dict({name: value / share for name, value in head.items()} if share else head)
    if model.backbone.bottleneck is not None:
        model.backbone.bottleneck.load_state_dict(_part(state, _BOTTLENECK))
    model.backbone.load_timm_state_dict({n: v for n, v in state.items() if not n.startswith(_ignored(model))})


def _ignored(model: Model) -> tuple[str, ...]:
    """How names begin that are not of the backbone: whichever of them the head does not use may be there."""
    return (*(f"{name}." for name in _classifier_names(model)), _HEAD, _BOTTLENECK)


def _part(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _is_timm(model: Model) -> bool:
    """Whether the model is one of timm's, classifier included."""
    return model.head_kind == "linear" and model.backbone.bottleneck is None


def _shares(model: Model) -> tuple[int, ...]:
    """What each of timm's classifiers is multiplied with: timm takes the mean of two, so that one alone is doubled."""
    names = _classifier_names(model)
    alone = getattr(model.backbone, "class_token_alone", False)
    return (2, 0) if alone and len(names) == 2 else (1,) * len(names)


def _classifier_names(model: Model) -> list[str]:
    """timm's names of the classifier; a distilled DeiT has two, one for each of its tokens."""
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
        "num_features": int(model.backbone.trunk.num_features),
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
            "bottleneck": trained.backbone.bottleneck,
            "distillation_token": trained.backbone.distillation_token,
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
