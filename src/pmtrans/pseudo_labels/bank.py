"""Pseudo labels from the nearest neighbours in a memory bank of the target, as the authors' code has them.

What the network said about each target image when it last met it in training.

What the network last said about each image of a domain.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class NeighbourBank(nn.Module):
    """Features and probabilities of every target image as last seen; buffers, so that a checkpoint holds them."""

    features_MF: Tensor
    probabilities_MK: Tensor

    def __init__(self, images: int, features: int, classes: int, neighbours: int = 5) -> None:
        super().__init__()
        self.neighbours = min(neighbours, max(1, images - 1))
        self.register_buffer("features_MF", torch.zeros(images, features))
        self.register_buffer("probabilities_MK", torch.zeros(images, classes))

    @torch.no_grad()
    def fill(self, features_MF: Tensor, probabilities_MK: Tensor) -> None:
        """Start from one pass over the whole target."""
        self.features_MF.copy_(F.normalize(features_MF.float(), dim=1))
        self.probabilities_MK.copy_(probabilities_MK)

    @torch.no_grad()
    def label(self, index_B: Tensor, features_BF: Tensor, probabilities_BK: Tensor) -> tuple[Tensor, Tensor]:
        """Enter a batch into the bank, then vote: labels_B and their confidences_B.

        What enters is p^2 normalised per class over the batch (sharper, and balanced over classes), then per image.
        The vote is the plain mean over the nearest neighbours by cosine, an image itself excluded.
        """
        features_BF = F.normalize(features_BF.float(), dim=1)
        sharp_BK = probabilities_BK.float().square()
        sharp_BK = sharp_BK / sharp_BK.sum(0, keepdim=True).clamp_min(1e-12)
        sharp_BK = sharp_BK / sharp_BK.sum(1, keepdim=True).clamp_min(1e-12)
        self.features_MF[index_B] = features_BF
        self.probabilities_MK[index_B] = sharp_BK
        cosine_BM = features_BF @ self.features_MF.T
        cosine_BM.scatter_(1, index_B[:, None], -2.0)
        nearest_BJ = cosine_BM.topk(self.neighbours, dim=1).indices
        vote_BK = self.probabilities_MK[nearest_BJ].mean(1)
        confidence_B, label_B = vote_BK.max(1)
        return label_B, confidence_B


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
