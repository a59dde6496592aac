"""Read or change the attention of a timm transformer, without copying or replacing timm's code.

All of timm's attention classes end in one call of fused attention. A ``TorchFunctionMode`` around the forward pass
intercepts that call with its queries, keys and values, after norms and rotary embedding, and can replace its result.

Shapes: B images (windows: B x windows), H heads, L tokens, E width of a head.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True)
class AttentionCall:
    """The arguments of ``scaled_dot_product_attention``, with its names and order."""

    query: Tensor  # BHLE, as key and value
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    def run(self) -> Tensor:
        return F.scaled_dot_product_attention(
            self.query,
            self.key,
            self.value,
            self.attn_mask,
            self.dropout_p,
            self.is_causal,
            scale=self.scale,
            enable_gqa=self.enable_gqa,
        )

    def is_global(self, length: int) -> bool:
        """Whether all ``length`` tokens attend to each other (false for a pooling head or a window)."""
        return self.query.ndim == 4 and self.query.shape[-2] == self.key.shape[-2] == length

    def first_row(self, rows: int | None = None) -> Tensor:
        """Attention of the first token to all tokens, for the first ``rows`` images: BHL after softmax, float32."""
        query = self.query[:rows, :, 0].float() * (self.scale or self.query.shape[-1] ** -0.5)
        with torch.autocast(query.device.type, enabled=False):
            logits_BHL = (query.unsqueeze(-2) @ self.key[:rows].float().transpose(-1, -2)).squeeze(-2)
        if self.attn_mask is not None:
            mask = self.attn_mask[..., 0, :]
            mask = mask[:rows] if mask.ndim == 3 and mask.shape[0] > 1 else mask
            kept = mask if mask.is_floating_point() else torch.zeros_like(logits_BHL).masked_fill(~mask, -torch.inf)
            logits_BHL = logits_BHL + kept.float()
        return logits_BHL.softmax(-1)


class AttentionMode(TorchFunctionMode, ABC):
    """A context in which ``attend`` computes every fused attention; ``calls`` counts them."""

    changes_results: ClassVar[bool] = True  # false for one that only reads: recomputation need not repeat it

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    @abstractmethod
    def attend(self, call: AttentionCall) -> Tensor:
        """The result of one attention; this mode is off while it runs."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self.calls += 1
        return self.attend(AttentionCall(*args, **(kwargs or {})))


def use_fused_attention(backbone: nn.Module) -> None:
    """Switch on the fused kernel wherever timm has one; some families (Swin) have it off by default."""
    for module in backbone.modules():
        if isinstance(getattr(module, "fused_attn", None), bool):
            setattr(module, "fused_attn", True)  # noqa: B010  (an attribute of timm, unknown to nn.Module)
