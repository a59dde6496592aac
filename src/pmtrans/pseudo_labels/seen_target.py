"""What the network said about each target image when it last met it in training."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SeenTarget(nn.Module):
    """Features and logits of the whole target as last seen; buffers, so that a checkpoint holds them."""

    features_MF: Tensor
    logits_MK: Tensor

    def __init__(self, images: int, features: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("features_MF", torch.zeros(images, features))
        self.register_buffer("logits_MK", torch.zeros(images, classes))

    @torch.no_grad()
    def fill(self, features_MF: Tensor, logits_MK: Tensor) -> None:
        """Start from one pass over the whole target."""
        self.features_MF.copy_(features_MF)
        self.logits_MK.copy_(logits_MK)

    @torch.no_grad()
    def store(self, index_B: Tensor, features_BF: Tensor, logits_BK: Tensor) -> None:
        """Enter a batch by the positions of its images in the target."""
        self.features_MF[index_B] = features_BF.float()
        self.logits_MK[index_B] = logits_BK.float()
