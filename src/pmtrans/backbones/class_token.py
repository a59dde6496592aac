"""Backbones with a class token (ViT, DeiT plain and distilled, DINOv2/v3, EVA, BEiT, ...).

The score of a patch is the attention that the class token pays it: after softmax, mean over heads, mean over
all layers, special tokens dropped, renormalised (paper, appendix "Attention Map").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pmtrans.backbones.backbone import Backbone, Encoding, Head


class _ClassTokenRow(TorchFunctionMode):
    """Sees the queries and keys on their way into fused attention and keeps only the class token's row.

    Reading them here, after norms and rotary embedding, needs neither the N x N map nor a second projection,
    leaves the fused kernel on, and holds for every attention class that timm has.
    """

    def __init__(self, rows: int, length: int) -> None:
        super().__init__()
        self.rows = rows
        self.length = length
        self.layers: list[Tensor] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            self._observe(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    @torch.no_grad()
    def _observe(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        **_: Any,
    ) -> None:
        if query.ndim != 4 or query.shape[-2] != self.length or key.shape[-2] != self.length:
            return  # another kind of attention (a pooling head): not between the class token and patches
        class_query = query[: self.rows, :, :1].float() * (scale or query.shape[-1] ** -0.5)
        logits = class_query @ key[: self.rows].float().transpose(-1, -2)
        if attn_mask is not None and attn_mask.is_floating_point():
            logits = logits + attn_mask[..., :1, :].float()
        self.layers.append(logits.softmax(-1).mean(1).squeeze(1))


class ClassTokenBackbone(Backbone):
    """Features are timm's own pooled output; scores come from the class token."""

    def encode(self, tokens_BND: Tensor, scored: int) -> Encoding:
        if scored == 0:
            return Encoding(self._features(tokens_BND))
        special = int(self.trunk.num_prefix_tokens)
        with _ClassTokenRow(scored, self.patches + special) as rows:
            features = self._features(tokens_BND)
        patches = torch.stack(rows.layers).mean(0)[:, special:]
        return Encoding(features, attention_BN=patches / patches.sum(1, keepdim=True))

    def _features(self, tokens_BND: Tensor) -> Tensor:
        features: Tensor = self.trunk.forward_head(self.final_tokens(tokens_BND), pre_logits=True)
        return features

    def attention_scores(self, encoding: Encoding, head: Head, labels_B: Tensor) -> Tensor:
        assert encoding.attention_BN is not None, "encode() was not asked to score these rows"
        return encoding.attention_BN
