"""Low-rank adapters: W + B A in place of W, of which only A and B learn.

Hu et al., "LoRA: Low-rank adaptation of large language models", ICLR 2022, with alpha = rank. A is drawn at random and
B is 0, so a model with fresh adapters computes what it did without.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.blocks import transformer_blocks
from pmtrans.errors import ConfigError

# Layers inside blocks that make numbers per head from positions or from other heads: no tokens pass them.
_OF_HEADS = {"cpb_mlp", "meta_mlp", "pos_proj", "proj_l", "proj_w"}


class AdaptedLinear(nn.Linear):
    """A linear layer whose weights are the sum of frozen ones and an adapter.

    In evaluation mode it multiplies with the sum, as the merged layer will: what is judged is what is shipped.
    """

    frozen: nn.Parameter  # out x in
    lora_a: nn.Parameter  # rank x in
    lora_b: nn.Parameter  # out x rank

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """W + B A, in the precision of W; the attention of BEiT and Swin v2 multiplies with it itself."""
        with torch.autocast(self.frozen.device.type, enabled=False):
            return torch.addmm(self.frozen, self.lora_b, self.lora_a)

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return F.linear(input, self.weight, self.bias)
        adapted = F.linear(F.linear(input, self.lora_a), self.lora_b)
        return F.linear(input, self.frozen, self.bias) + adapted


def add_adapters(backbone: Backbone, rank: int, frozen_blocks: int = 0) -> None:
    """Freeze the backbone, and adapt the linear layers of its blocks after the first ``frozen_blocks``; 0: nothing.

    A layer with fewer than ``rank`` + 1 inputs or outputs has no adapter: it would not be of a lower rank.
    """
    if rank == 0:
        return
    blocks = transformer_blocks(backbone)[frozen_blocks:]
    layers = [layer for block in blocks for layer in _linear_layers(block)]
    adapted = [layer for layer in layers if rank < min(layer.in_features, layer.out_features)]
    if not adapted:
        reason = f"no layer is wider than {rank}" if layers else "no block with linear layers is left to adapt"
        raise ConfigError(f"train.lora={rank}: {reason} in backbone {backbone.name!r}.")
    backbone.requires_grad_(False)
    for layer in adapted:
        frozen, first = layer.weight, layer.weight.new_empty(rank, layer.in_features)
        nn.init.kaiming_uniform_(first, a=math.sqrt(5))
        del layer.weight
        layer.__class__ = AdaptedLinear
        layer.frozen, layer.lora_a = frozen, nn.Parameter(first)
        layer.lora_b = nn.Parameter(first.new_zeros(layer.out_features, rank))


def _linear_layers(block: nn.Module) -> Iterator[nn.Linear]:
    for name, part in block.named_modules():
        if type(part) is nn.Linear and _OF_HEADS.isdisjoint(name.split(".")):
            yield part


def adapters_in(module: nn.Module) -> list[nn.Parameter]:
    """A and B of every adapted layer."""
    adapted = [part for part in module.modules() if isinstance(part, AdaptedLinear)]
    return [parameter for part in adapted for parameter in (part.lora_a, part.lora_b)]


@torch.no_grad()
def merged_state(module: nn.Module) -> dict[str, Tensor]:
    """Its ``state_dict`` as it will be without adapters; the module stays as it is."""
    state: dict[str, Tensor] = module.state_dict()
    for name, part in module.named_modules():
        if isinstance(part, AdaptedLinear):
            state[f"{name}.weight"] = part.weight
            del state[f"{name}.frozen"], state[f"{name}.lora_a"], state[f"{name}.lora_b"]
    return state


@torch.no_grad()
def merge_adapters(module: nn.Module) -> None:
    """Add B A to the weights and take the adapters away: linear layers again."""
    for part in [part for part in module.modules() if isinstance(part, AdaptedLinear)]:
        merged, layer = part.weight, cast(nn.Linear, part)
        del part.frozen, part.lora_a, part.lora_b
        layer.__class__ = nn.Linear
        layer.weight = nn.Parameter(merged)
