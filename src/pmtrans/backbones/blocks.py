"""The blocks of a timm transformer in order, the layer of each parameter, and checks of what blocks support."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.before_block import before_block
from pmtrans.errors import ModelError


def transformer_blocks(backbone: Backbone) -> list[nn.Module]:
    """All blocks from the first to the last, through all stages of a hierarchical model."""
    return [block for stage in _stages(backbone) for block in getattr(stage, "blocks", [stage])]


def _stages(backbone: Backbone) -> nn.ModuleList | nn.Sequential:
    """The blocks, or what holds them stage by stage."""
    for name in ("blocks", "layers", "stages"):
        stages = getattr(backbone.trunk, name, None)
        if isinstance(stages, (nn.ModuleList, nn.Sequential)) and len(stages):
            return stages
    raise ModelError(f"Backbone {backbone.name!r} has no blocks in sequence: use a ViT or Swin.")


def layer_of(backbone: Backbone) -> dict[nn.Parameter, int]:
    """The layer of every parameter: embedding and tokens 0, the L blocks 1 to L, what comes after them L + 1.

    What stands beside the blocks of a stage belongs to its first block if it is before them (downsampling), else to
    its last. Before and after are the order in which timm's models register their parts.
    """
    stages, blocks = _stages(backbone), transformer_blocks(backbone)
    numbers = {block: number for number, block in enumerate(blocks, 1)}
    layers = dict.fromkeys(backbone.parameters(), 0)
    bottleneck = [] if backbone.bottleneck is None else [backbone.bottleneck]
    for part in (*_after(backbone.trunk, stages), *bottleneck):
        layers |= dict.fromkeys(part.parameters(), len(blocks) + 1)
    for stage in stages:
        own: Any = getattr(stage, "blocks", None)  # nn.Module knows no types of its attributes
        if own is not None:
            layers |= dict.fromkeys(stage.parameters(), numbers[own[0]])
            for part in _after(stage, own):
                layers |= dict.fromkeys(part.parameters(), numbers[own[-1]])
    for block, number in numbers.items():
        layers |= dict.fromkeys(block.parameters(), number)
    return layers


def _after(parent: nn.Module, child: nn.Module) -> list[nn.Module]:
    children = list(parent.children())
    return children[children.index(child) + 1 :]


@torch.no_grad()
def check_growing_batch(backbone: Backbone) -> None:
    """Refuse a backbone whose batch cannot grow between two blocks."""
    blocks = transformer_blocks(backbone)
    image = torch.zeros(1, 3, backbone.image_size, backbone.image_size, device=next(backbone.parameters()).device)
    was_training = backbone.training
    backbone.eval()
    try:
        with before_block(blocks[len(blocks) // 2], lambda hidden: torch.cat([hidden, hidden])):
            grown = len(backbone(image)) == 2
    except (RuntimeError, TypeError, AttributeError):
        grown = False
    backbone.train(was_training)
    if not grown:
        raise ModelError(f"Backbone {backbone.name!r} keeps its batch fixed from block to block: use a ViT or Swin.")


def refuse_undividable(backbones: Iterable[Backbone]) -> None:
    """Refuse batch normalisation: in a divided batch its statistics would not be those of the whole batch."""
    for backbone in backbones:
        if any(isinstance(module, _BatchNorm) for module in backbone.trunk.modules()):
            raise ModelError(
                f"Backbone {backbone.name!r} has batch normalisation, so dividing its batch would change the result: "
                "use train.accumulation=plain."
            )
