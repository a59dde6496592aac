"""Frozen layers: embedding, tokens and the first blocks keep their pretrained weights and need no backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.blocks import layer_of, transformer_blocks
from pmtrans.errors import ConfigError


def freeze_blocks(backbone: Backbone, number: int) -> None:
    """Freeze embedding, tokens and the first ``number`` blocks: no gradients, and no activations kept for them.

    A pass through them is no part of the graph, whatever its inputs need: nothing learns from before them. 0: nothing
    is frozen. (Statistics of batch normalisation are no weights: they follow the data as before.)
    """
    if number == 0:
        return
    blocks = transformer_blocks(backbone)
    if number > len(blocks):
        raise ConfigError(f"train.freeze_blocks={number}: backbone {backbone.name!r} has only {len(blocks)} blocks.")
    for parameter, layer in layer_of(backbone).items():
        if layer <= number:
            parameter.requires_grad_(False)
    for module in (backbone.stem, *blocks[:number]):
        setattr(module, "forward", functools.partial(_without_graph, module.forward))  # noqa: B010


def _without_graph(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with torch.no_grad():
        return forward(*args, **kwargs)


def is_frozen(block: nn.Module) -> bool:
    """Whether none of its weights learns, as in a teacher."""
    return not any(parameter.requires_grad for parameter in block.parameters())
