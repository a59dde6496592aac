"""Three branches with shared weights, the third of which attends across (CDTrans, ICLR 2022, Section 3.2 and 3.3)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from pmtrans.backbones.attention import AttentionCall, AttentionMode
from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.blocks import transformer_blocks
from pmtrans.errors import ModelError


class _CrossAttention(AttentionMode):
    """Of a batch of three thirds (source, target, cross) the last asks with the first's queries and sees the second."""

    def attend(self, call: AttentionCall) -> Tensor:
        source_q, target_q, _ = call.query.chunk(3)
        source_k, target_k, _ = call.key.chunk(3)
        source_v, target_v, _ = call.value.chunk(3)
        crossed = replace(
            call,
            query=torch.cat([source_q, target_q, source_q]),
            key=torch.cat([source_k, target_k, target_k]),
            value=torch.cat([source_v, target_v, target_v]),
        )
        return crossed.run()


def encode_three_branches(backbone: Backbone, source_BND: Tensor, target_BND: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Features of source, target and cross branch in one pass of 3B.

    The cross branch is a residual stream of its own that starts as the target's embedding. It attends in every layer
    with Q of the source, K and V of the target; all else (norms, perceptrons, windows) is timm's.
    """
    with _CrossAttention() as attention:
        features_3BF = backbone.encode(torch.cat([source_BND, target_BND, target_BND]), scored=0).features_BF
    if attention.calls < len(transformer_blocks(backbone)):  # some block would have kept to itself, unnoticed
        raise ModelError(
            f"Backbone {backbone.name!r} has blocks that cannot look across two images: take a ViT, DeiT or Swin."
        )
    source_BF, target_BF, cross_BF = features_3BF.chunk(3)
    return source_BF, target_BF, cross_BF
