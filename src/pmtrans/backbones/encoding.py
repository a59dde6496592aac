"""The output of a backbone. Shapes: B images, N patches, F width of the features, P final tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Encoding:
    """Features of a batch, and for its leading rows what attention scores need."""

    features_BF: Tensor
    attention_BN: Tensor | None = None  # class-token backbones: mean over layers, of the scored rows
    last_attention_BN: Tensor | None = None  # of the last layer only
    tokens_BPF: Tensor | None = None  # pooled backbones: each final token as the head sees it

    @classmethod
    def join(cls, parts: Sequence[Encoding]) -> Encoding:
        """Concatenate; scored parts must come first."""
        columns = []
        for name in ("features_BF", "attention_BN", "last_attention_BN", "tokens_BPF"):
            rows = [value for part in parts if (value := getattr(part, name)) is not None]
            columns.append(torch.cat(rows) if rows else None)
        assert columns[0] is not None
        return cls(columns[0], *columns[1:])

    def split(self, size: int) -> list[Encoding]:
        """Split into encodings of ``size`` rows; rows that were not scored have no attention."""
        pieces = []
        for start in range(0, len(self.features_BF), size):
            rows = slice(start, start + size)
            optional = (self.attention_BN, self.last_attention_BN, self.tokens_BPF)
            pieces.append(Encoding(self.features_BF[rows], *(_piece(value, rows) for value in optional)))
        return pieces


def _piece(value: Tensor | None, rows: slice) -> Tensor | None:
    return value[rows] if value is not None and rows.start < len(value) else None
