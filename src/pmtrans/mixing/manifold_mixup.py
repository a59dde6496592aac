"""Manifold Mixup (Verma et al., ICML 2019): Mixup of hidden states, before a random block of the transformer."""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.before_block import before_block
from pmtrans.backbones.blocks import check_growing_batch, transformer_blocks
from pmtrans.backbones.encoding import Encoding
from pmtrans.mixing.mixing import Mixed, interpolate
from pmtrans.mixing.mixup import Mixup
from pmtrans.processes.rows import own_rows


class ManifoldMixup(Mixup):
    """One ratio per pair; the block is drawn at each step. Before it the batch has 2B images, from there 3B."""

    def check(self, backbone: Backbone) -> None:
        check_growing_batch(backbone)

    def forward(self, source_BND: Tensor, target_BND: Tensor) -> Mixed:
        """The ratios; there are no mixed tokens before the drawn block."""
        drawn_BN = self.ratios(len(source_BND))
        return Mixed(source_BND[:0], drawn_BN if self.weighs == "source" else 1 - drawn_BN)

    def encode(self, backbone: Backbone, source_BND: Tensor, target_BND: Tensor, mixed: Mixed, scored: int) -> Encoding:
        blocks = transformer_blocks(backbone)

        def mix_hidden(hidden_2B: Tensor) -> Tensor:
            source_B, target_B = hidden_2B.chunk(2)
            ratio_B = own_rows(mixed.ratio_BN[:, 0]).view(-1, *[1] * (hidden_2B.ndim - 1))
            return torch.cat([hidden_2B, interpolate(source_B, target_B, ratio_B)])

        with before_block(blocks[int(torch.randint(len(blocks), ()))], mix_hidden):
            return backbone.encode(torch.cat([source_BND, target_BND]), scored)
