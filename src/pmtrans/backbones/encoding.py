"""What a transformer makes of a batch. B images, N patches, F width of the features, P final tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Encoding:
    """What comes out of the transformer for one batch of token sequences."""

    features_BF: Tensor
    attention_BN: Tensor | None = None  # class-token backbones: scores of the leading rows asked for
    last_attention_BN: Tensor | None = None  # the same, of the last layer alone
    tokens_BPF: Tensor | None = None  # pooled backbones: the final tokens as the head would see each

    @classmethod
    def join(cls, parts: Sequence[Encoding]) -> Encoding:
        """The rows of all parts in one; the parts that were scored come first."""
        columns = []
        for name in ("features_BF", "attention_BN", "last_attention_BN", "tokens_BPF"):
            rows = [value for part in parts if (value := getattr(part, name)) is not None]
            columns.append(torch.cat(rows) if rows else None)
        assert columns[0] is not None
        return cls(columns[0], *columns[1:])

    def split(self, size: int) -> list[Encoding]:
        """Cut into encodings of ``size`` rows; rows beyond those scored have no attention."""
        pieces = []
        for start in range(0, len(self.features_BF), size):
            rows = slice(start, start + size)
            optional = (self.attention_BN, self.last_attention_BN, self.tokens_BPF)
            pieces.append(Encoding(self.features_BF[rows], *(_piece(value, rows) for value in optional)))
        return pieces


def _piece(value: Tensor | None, rows: slice) -> Tensor | None:
    return value[rows] if value is not None and rows.start < len(value) else None
