"""The transferability adaptation module (TVT, WACV 2023, Section 3.3): the class token looks where domains agree.

Shapes: B images, H heads, L tokens (special ones first), E width of a head, F feature width.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pmtrans.backbones.attention import AttentionCall, AttentionMode
from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.before_block import before_block
from pmtrans.backbones.blocks import transformer_blocks
from pmtrans.backbones.class_token import ClassTokenBackbone
from pmtrans.errors import ModelError
from pmtrans.processes.rows import all_rows, own_rows

Judge = Callable[[Tensor], Tensor]  # keys of the patches BH(L-special)E -> domain logits BH(L-special)


class _WeightedClassAttention(AttentionMode):
    """In the one block that ``arm`` announces, the class token's attention is weighed by transferability."""

    def __init__(self, judge: Judge, special: int, length: int) -> None:
        super().__init__()
        self.judge, self.special, self.length = judge, special, length
        self.armed = False
        self.domain_logits: Tensor | None = None

    def arm(self, hidden: Tensor) -> Tensor:
        self.armed = True
        return hidden

    def attend(self, call: AttentionCall) -> Tensor:
        if not self.armed or self.domain_logits is not None or not call.is_global(self.length):
            return call.run()
        self.domain_logits = self.judge(all_rows(call.key[:, :, self.special :]))
        weight = nn.functional.pad(own_rows(transferability(self.domain_logits)), (self.special, 0), value=1.0)
        row_BHL = nn.functional.dropout(call.first_row() * weight, call.dropout_p)
        first_BH1E = row_BHL.unsqueeze(-2).to(call.value) @ call.value
        return torch.cat([first_BH1E, call.run()[:, :, 1:]], 2)


def transferability(domain_logits: Tensor) -> Tensor:
    """H(sigmoid(d)) in bits: 1 where the discriminator cannot tell the domains, 0 where it is sure (Eq. 7).

    Gradients pass: the discriminator also learns how its weights serve the classification, as in the authors' code.
    """
    d = domain_logits.float()
    nats = nn.functional.softplus(d) - d * d.sigmoid()
    return nats / math.log(2)


def encode_by_transferability(backbone: Backbone, tokens_BND: Tensor, judge: Judge) -> tuple[Tensor, Tensor]:
    """Features_BF with the class token's attention in the last block weighed, and the domain logits of all patches."""
    if not isinstance(backbone, ClassTokenBackbone):
        raise ModelError(f"Backbone {backbone.name!r} has no class token whose attention could be weighed: take a ViT.")
    special = int(backbone.trunk.num_prefix_tokens)
    attention = _WeightedClassAttention(judge, special, backbone.patches + special)
    with before_block(transformer_blocks(backbone)[-1], attention.arm), attention:
        features_BF = backbone.encode(tokens_BND, scored=0).features_BF
    if attention.domain_logits is None:
        raise ModelError(f"Backbone {backbone.name!r} has no attention between all tokens in its last block.")
    return features_BF, attention.domain_logits


def head_width(backbone: Backbone) -> int:
    """E: the width of the keys that the patch discriminator judges."""
    seen: list[int] = []

    def judge(keys: Tensor) -> Tensor:
        seen.append(keys.shape[-1])
        return keys[..., 0]

    size = backbone.image_size
    with torch.no_grad():
        encode_by_transferability(backbone, backbone.embed(torch.zeros(1, 3, size, size)), judge)
    return seen[0]
