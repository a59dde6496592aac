"""Backbones without a class token (Swin and other pooled transformers): scores from class activation.

The score of a patch is the classifier's logit for class c on its final token, softmax over positions, with c the
label (source) or the pseudo label (target): paper, appendix "Attention Map". The final grid is resized to the patch
grid by nearest neighbour and renormalised.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmtrans.backbones.backbone import Backbone, Head
from pmtrans.backbones.encoding import Encoding


class PooledBackbone(Backbone):
    """Features are timm's pooled output; the final tokens are kept for the activation map."""

    def __init__(self, model: nn.Module, stem_name: str, image_size: int) -> None:
        super().__init__(model, stem_name, image_size)
        was_training = model.training
        with torch.no_grad():
            empty = self.embed(torch.zeros(1, 3, image_size, image_size))
            self.trunk.eval()
            final = self.final_tokens(empty)
        self.trunk.train(was_training)
        self._special = 0
        if final.ndim == 3:
            side = math.isqrt(final.shape[1])
            self._special = final.shape[1] - side * side  # special tokens before the patches, added in the last blocks
            self.final_grid = (side, side)
            self._final_layout = "NLC"
        else:
            channels_last = final.shape[-1] == self.features
            self.final_grid = tuple(final.shape[1:3] if channels_last else final.shape[2:])
            self._final_layout = "NHWC" if channels_last else "NCHW"

    @classmethod
    def accepts(cls, model: Any) -> bool:
        return True  # whatever no other family took

    def _encode(self, tokens_BND: Tensor, scored: int) -> Encoding:
        final: Any = self.final_tokens(tokens_BND)
        features = self.trunk.forward_head(final, pre_logits=True)
        return Encoding(features, tokens_BPF=self._tokens(final[:scored]) if scored else None)

    def _tokens(self, final: Tensor) -> Tensor:
        """Each final token as the head sees it: pooled and normalised as a map of one position."""
        flat = {
            "NLC": final[:, self._special :],
            "NHWC": final.flatten(1, -2),
            "NCHW": final.flatten(2).transpose(1, 2),
        }
        tokens_BPF = flat[self._final_layout].detach()
        single = tokens_BPF.reshape(-1, tokens_BPF.shape[-1])
        position = {"NLC": single[:, None], "NHWC": single[:, None, None], "NCHW": single[..., None, None]}
        with torch.no_grad():
            alone: Tensor = self.trunk.forward_head(position[self._final_layout], pre_logits=True)
        return alone.view(*tokens_BPF.shape[:2], -1)

    @torch.no_grad()
    def attention_scores(self, encoding: Encoding, head: Head, labels_B: Tensor, last: bool = False) -> Tensor:
        assert encoding.tokens_BPF is not None, "encode() was not asked to score these rows"
        logits_BPK = head(encoding.tokens_BPF).float()
        index = labels_B[:, None, None].expand(-1, logits_BPK.shape[1], 1)
        activation_BP = logits_BPK.gather(2, index).squeeze(2).softmax(1)
        grid = activation_BP.unflatten(1, self.final_grid)[:, None]
        scores_BN = F.interpolate(grid, size=self.grid, mode="nearest").flatten(1)
        return scores_BN / scores_BN.sum(1, keepdim=True)
