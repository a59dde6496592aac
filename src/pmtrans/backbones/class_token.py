"""Backbones with a class token (ViT, DeiT plain and distilled, DINOv2/v3, EVA, BEiT, ...).

The score of a patch is the attention that the class token pays it: after softmax, mean over heads, mean over
all layers, special tokens dropped, renormalised (paper, appendix "Attention Map").
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pmtrans.backbones.attention import AttentionCall, InsideAttention
from pmtrans.backbones.backbone import Backbone, Head
from pmtrans.backbones.encoding import Encoding


class _ClassTokenRow(InsideAttention):
    """Keeps only the class token's row of every layer.

    This needs neither the N x N map nor a second projection, leaves the fused kernel on, and holds for every attention
    class that timm has.
    """

    changes_results = False

    def __init__(self, rows: int, length: int) -> None:
        super().__init__()
        self.rows = rows
        self.length = length
        self.layers: list[Tensor] = []

    def attend(self, call: AttentionCall) -> Tensor:
        if call.joins(self.length):
            with torch.no_grad():
                self.layers.append(call.first_row(self.rows).mean(1))
        return call.run()


class ClassTokenBackbone(Backbone):
    """Features are timm's own pooled output; scores come from the class token."""

    @classmethod
    def accepts(cls, model: Any) -> bool:
        return getattr(model, "cls_token", None) is not None and getattr(model, "num_prefix_tokens", 0) > 0

    def _encode(self, tokens_BND: Tensor, scored: int) -> Encoding:
        if scored == 0:
            return Encoding(self._features(tokens_BND))
        special = int(self.trunk.num_prefix_tokens)
        rows = _ClassTokenRow(scored, self.patches + special)
        with rows:
            features = self._features(tokens_BND)
        mean_BN, last_BN = (scores[:, special:] for scores in (torch.stack(rows.layers).mean(0), rows.layers[-1]))
        return Encoding(
            features,
            attention_BN=mean_BN / mean_BN.sum(1, keepdim=True),
            last_attention_BN=last_BN / last_BN.sum(1, keepdim=True),
        )

    def _features(self, tokens_BND: Tensor) -> Tensor:
        features: Tensor = self.trunk.forward_head(self.final_tokens(tokens_BND), pre_logits=True)
        return features

    def attention_scores(self, encoding: Encoding, head: Head, labels_B: Tensor, last: bool = False) -> Tensor:
        scores_BN = encoding.last_attention_BN if last else encoding.attention_BN
        assert scores_BN is not None, "encode() was not asked to score these rows"
        return scores_BN
