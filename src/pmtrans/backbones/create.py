"""Build a backbone from a timm transformer with one patch embedding; weights: random, of timm, the hub or a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import timm
import torch
from timm.layers import set_fused_attn
from torch import nn

from pmtrans.backbones import digits_vit  # noqa: F401  (registers the demo's transformer with timm)
from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.class_token import ClassTokenBackbone
from pmtrans.backbones.drop_path import draw_for_whole_batches
from pmtrans.backbones.hub import asked_once
from pmtrans.backbones.pooled import PooledBackbone
from pmtrans.backbones.weights import load_weights
from pmtrans.errors import ModelError, is_out_of_memory, nearest, one_line
from pmtrans.machine import available_memory

FAMILIES: tuple[type[Backbone], ...] = (  # the first that accepts a model takes it
    ClassTokenBackbone,
    PooledBackbone,
)
_STEMS = ("patch_embed", "stem")
# Options of timm that would load weights without our checks, or that other settings decide.
_RESERVED = {"pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir", "num_classes"}
MAX_DEPTH, MAX_WIDTH = 512, 16_384  # beyond every transformer of timm


def create_backbone(
    name: str,
    weights: str = "none",
    image_size: int = 224,
    options: dict[str, Any] | None = None,
    bottleneck: int = 0,
    distillation_token: bool = True,
) -> Backbone:
    """Build a backbone. ``weights``: ``none``, ``timm`` (the name's tag), ``hf-hub:ORG/REPO`` or a file.

    ``options`` are passed on to timm's model (``drop_path_rate``, ``depth``, ...). ``bottleneck``: its width, 0: none.
    ``distillation_token``: whether the features of a distilled DeiT are the mean of both tokens, as in timm.
    """
    backbone = _split(name, weights, image_size, options or {})
    with _refused_as(f"Backbone {one_line(name)!r} cannot be split into embed and encode at {image_size} px"):
        _try(backbone.eval())
    return _shaped(backbone, bottleneck, distillation_token)


def outline_backbone(
    name: str, image_size: int, options: dict[str, Any], bottleneck: int, distillation_token: bool
) -> Backbone:
    """The backbone with the shapes of its tensors only: whatever its size, nothing is allocated or computed."""
    with torch.device("meta"):
        return _shaped(_split(name, "none", image_size, options), bottleneck, distillation_token)


def _split(name: str, weights: str, image_size: int, options: dict[str, Any]) -> Backbone:
    if forbidden := sorted(_RESERVED & options.keys()):
        raise ModelError(f"backbone.options.{forbidden[0]} is reserved: weights come from backbone.weights.")
    refuse_absurd(options)
    set_fused_attn(True)
    if weights.startswith("hf-hub:"):
        name, weights = weights, "timm"
    model = _timm_model(name, weights == "timm", image_size, options)
    stem_name = next((stem for stem in _STEMS if hasattr(model, stem)), None)
    if not _has_attention(model):
        raise ModelError(f"Backbone {one_line(name)!r} is not a transformer: PatchMix needs patches and attention.")
    if stem_name is None:
        raise ModelError(f"Backbone {one_line(name)!r} has no single patch embedding at which patches could be mixed.")
    draw_for_whole_batches(model)
    if weights not in ("none", "timm"):
        load_weights(model, Path(weights))
    family = next(family for family in FAMILIES if family.accepts(model))
    with _refused_as(f"Backbone {one_line(name)!r} cannot be split into embed and encode at {image_size} px"):
        return family(model, stem_name, image_size)


@torch.no_grad()
def _try(backbone: Backbone) -> None:
    """A trial pass: does the timm model support embed, encode and scores?"""
    image = torch.zeros(1, 3, backbone.image_size, backbone.image_size)
    encoding = backbone.encode(backbone.embed(image), scored=1)
    backbone.attention_scores(encoding, nn.Linear(backbone.features, 2), torch.zeros(1, dtype=torch.long))


def _shaped(backbone: Backbone, bottleneck: int, distillation_token: bool) -> Backbone:
    if not distillation_token and isinstance(backbone, ClassTokenBackbone):
        backbone.class_token_alone = getattr(backbone.trunk, "dist_token", None) is not None
    if bottleneck:
        backbone.narrow(bottleneck)
    return backbone.train()


@contextmanager
def _refused_as(what: str) -> Iterator[None]:
    """timm's models say in many ways that they are not what is expected here."""
    try:
        yield
    except (AssertionError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise ModelError(f"{what}: {one_line(error or type(error).__name__, 150)}") from None


def refuse_absurd(options: dict[str, Any]) -> None:
    """Sizes that no transformer has would be built for minutes, or until the memory is gone."""
    for key, value in options.items():
        largest = MAX_DEPTH if "depth" in key else MAX_WIDTH
        numbers = value if isinstance(value, list | tuple) else [value]
        if len(numbers) > 64 or any(isinstance(one, int | float) and not abs(one) <= largest for one in numbers):
            raise ModelError(f"backbone.options.{one_line(key, 60)} is impossible: at most 64 numbers up to {largest}.")
    depth, width = options.get("depth", 1), options.get("embed_dim", 1)
    if isinstance(depth, int) and isinstance(width, int):
        needed, free = 4 * 12 * depth * width**2, available_memory(torch.device("cpu"))  # 12: attention and MLP
        if needed > free:
            raise ModelError(
                f"backbone.options ask for weights of {needed / 1e9:.0f} GB, there is memory for {free / 1e9:.0f} GB."
            )


def _timm_model(name: str, pretrained: bool, image_size: int, options: dict[str, Any]) -> Any:
    if not name.startswith(("hf-hub:", "local-dir:")):
        architecture, _, tag = name.partition(".")
        if not timm.is_model(architecture):
            raise ModelError(
                f"timm has no model {one_line(architecture)!r}.{nearest(architecture, timm.list_models())}"
            )
        tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{architecture}.*")]
        if tag and tag not in tags:
            raise ModelError(f"Model {architecture!r} has no pretrained tag {one_line(tag)!r}.{nearest(tag, tags)}")
    arguments: dict[str, Any] = {"num_classes": 0, "pretrained": pretrained, **options}
    downloads = pretrained or name.startswith("hf-hub:")
    unreachable = None
    try:
        with asked_once() if downloads else nullcontext() as unreachable:
            try:
                return timm.create_model(name, img_size=image_size, **arguments)
            except TypeError as error:
                if "img_size" not in str(error):
                    raise
                return timm.create_model(name, **arguments)  # fully convolutional stems accept any size
    except Exception as error:  # the hub, the file system and timm's asserts raise many types
        if is_out_of_memory(error):
            raise
        what = "Pretrained weights of" if pretrained else "Model"
        reason = unreachable or one_line(str(error) or type(error).__name__, 200).rstrip(".")
        hint = " Give a local file instead: --weights FILE." if downloads else ""
        raise ModelError(f"{what} {one_line(name)!r} at {image_size} px cannot be loaded: {reason}.{hint}") from None


def _has_attention(model: nn.Module) -> bool:
    kinds = {type(module).__name__ for module in model.modules()}
    return any(("Att" in kind or "attn" in kind.lower()) and "Pool" not in kind for kind in kinds)
