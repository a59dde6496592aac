"""What the network last said about each image of a domain."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class FeatureMemory(nn.Module):
    """Feature and label of every image as last seen, -1 where it was not; buffers, so that a checkpoint holds them."""

    features_MF: Tensor
    labels_M: Tensor

    def __init__(self, images: int, features: int) -> None:
        super().__init__()
        self.register_buffer("features_MF", torch.zeros(images, features))
        self.register_buffer("labels_M", torch.full((images,), -1))

    @torch.no_grad()
    def store(self, index_B: Tensor, features_BF: Tensor, labels_B: Tensor) -> None:
        """Enter a batch by the positions of its images in the domain."""
        self.features_MF[index_B] = features_BF.float()
        self.labels_M[index_B] = labels_B
