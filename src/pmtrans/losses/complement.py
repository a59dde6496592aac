"""Cross entropy with "not this class": what a doubted label is punished with (FixBi, MDD)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def complement_cross_entropy(logits_BK: Tensor, labels_B: Tensor) -> Tensor:
    """-log(1 - p_label) of each row, exact also where p_label rounds to 1."""
    own_BK = F.one_hot(labels_B, logits_BK.shape[1]).bool()
    others_B = logits_BK.masked_fill(own_BK, -torch.inf).logsumexp(1)
    return logits_BK.logsumexp(1) - others_B
