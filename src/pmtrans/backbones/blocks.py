"""The blocks of any timm transformer in order, and checks of what they support."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.before_block import before_block
from pmtrans.errors import ModelError


def transformer_blocks(backbone: Backbone) -> list[nn.Module]:
    """All blocks from the first to the last, through all stages of a hierarchical model."""
    for name in ("blocks", "layers", "stages"):
        stages = getattr(backbone.trunk, name, None)
        if isinstance(stages, (nn.ModuleList, nn.Sequential)) and len(stages):
            return [block for stage in stages for block in getattr(stage, "blocks", [stage])]
    raise ModelError(f"Backbone {backbone.name!r} has no blocks in sequence: use a ViT or Swin.")


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
