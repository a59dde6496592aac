"""Backbones with a class token (ViT, DeiT plain and distilled, DINOv2/v3, EVA, BEiT, ...).

The score of a patch is the attention from the class token to it: after softmax, mean over heads and layers, without
special tokens, renormalised (paper, appendix "Attention Map").
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pmtrans.backbones.attention import AttentionCall, AttentionMode
from pmtrans.backbones.backbone import Backbone, Head
from pmtrans.backbones.encoding import Encoding


class _RecordClassToken(AttentionMode):
    """Records the class token's row of attention in every layer.

    It needs neither the N x N map nor a second projection, keeps the fused kernel, and works with every attention class
    of timm.
    """

    changes_results = False

    def __init__(self, rows: int, length: int) -> None:
        super().__init__()
        self.rows = rows
        self.length = length
        self.layers: list[Tensor] = []

    def attend(self, call: AttentionCall) -> Tensor:
        if call.is_global(self.length):
            with torch.no_grad():
                self.layers.append(call.first_row(self.rows).mean(1))
        return call.run()


class ClassTokenBackbone(Backbone):
    """Features are timm's pooled output; scores are the attention of the class token.

    ``class_token_alone``: of a distilled DeiT, whose output is the mean of two tokens, the class token.
    """

    class_token_alone = False

    @classmethod
    def accepts(cls, model: Any) -> bool:
        return getattr(model, "cls_token", None) is not None and getattr(model, "num_prefix_tokens", 0) > 0

    def _encode(self, tokens_BND: Tensor, scored: int) -> Encoding:
        if scored == 0:
            return Encoding(self._features(tokens_BND))
        special = int(self.trunk.num_prefix_tokens)
        recorded = _RecordClassToken(scored, self.patches + special)
        with recorded:
            features = self._features(tokens_BND)
        mean_BN = torch.stack(recorded.layers).mean(0)[:, special:]
        last_BN = recorded.layers[-1][:, special:]
        return Encoding(
            features,
            attention_BN=mean_BN / mean_BN.sum(1, keepdim=True),
            last_attention_BN=last_BN / last_BN.sum(1, keepdim=True),
        )

    def _features(self, tokens_BND: Tensor) -> Tensor:
        final = self.final_tokens(tokens_BND)
        features: Tensor = final[:, 0] if self.class_token_alone else self.trunk.forward_head(final, pre_logits=True)
        return features

    def attention_scores(self, encoding: Encoding, head: Head, labels_B: Tensor, last: bool = False) -> Tensor:
        scores_BN = encoding.last_attention_BN if last else encoding.attention_BN
        assert scores_BN is not None, "encode() was not asked to score these rows"
        return scores_BN
