"""The blocks of any timm transformer in order, and a way to change what enters one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pmtrans.errors import ModelError

if TYPE_CHECKING:
    from pmtrans.backbones.backbone import Backbone

_changed = 0  # how many changes are in force

Change = Callable[[Tensor], Tensor]  # hidden states, images first, in the layout of the family -> the same


def transformer_blocks(backbone: Backbone) -> list[nn.Module]:
    """All blocks from the first to the last, through all stages of a hierarchical model."""
    for name in ("blocks", "layers", "stages"):
        stages = getattr(backbone.trunk, name, None)
        if isinstance(stages, (nn.ModuleList, nn.Sequential)) and len(stages):
            return [block for stage in stages for block in getattr(stage, "blocks", [stage])]
    raise ModelError(f"Backbone {backbone.name!r} has no blocks in a row that could be entered: take a ViT or Swin.")


@contextmanager
def before_block(block: nn.Module, change: Change) -> Iterator[None]:
    """While it lasts, ``change`` acts on the hidden states that enter ``block``; it may add images to the batch."""
    global _changed
    hook = block.register_forward_pre_hook(lambda _, inputs: (change(inputs[0]), *inputs[1:]))
    _changed += 1
    try:
        yield
    finally:
        _changed -= 1
        hook.remove()


def couples_rows() -> bool:
    """Whether hidden states are changed on their way: a change sees the whole batch, so it must not be divided."""
    return _changed > 0


@torch.no_grad()
def check_growing_batch(backbone: Backbone) -> None:
    """Refuse a backbone that cannot take more images on board between two blocks."""
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
        raise ModelError(f"Backbone {backbone.name!r} keeps its batch fixed from block to block: take a ViT or Swin.")
