"""One point per class: means of features by label, of a set or carried along from batch to batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def class_means(features_NF: Tensor, labels_N: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Means_KF and how many images each is of; a label of -1 belongs to nobody, the mean of no image is 0."""
    member_NK = (labels_N[:, None] == torch.arange(classes, device=labels_N.device)).float()
    count_K = member_NK.sum(0)
    # a product, not scatter_add: deterministic on every device
    return member_NK.T @ features_NF.float() / count_K.clamp_min(1)[:, None], count_K


class Prototypes(nn.Module):
    """Class means that move by momentum; buffers, so that a checkpoint holds them."""

    means_KF: Tensor
    seen_K: Tensor

    def __init__(self, classes: int, features: int, momentum: float = 0.9) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("means_KF", torch.zeros(classes, features))
        self.register_buffer("seen_K", torch.zeros(classes, dtype=torch.bool))

    @torch.no_grad()
    def update(self, features_BF: Tensor, labels_B: Tensor) -> None:
        """m <- momentum m + (1 - momentum) batch mean, for the classes of the batch; the first mean is taken whole."""
        batch_KF, count_K = class_means(features_BF, labels_B, len(self.means_KF))
        keep_K = self.momentum * self.seen_K
        moved_KF = keep_K[:, None] * self.means_KF + (1 - keep_K)[:, None] * batch_KF
        here_K = count_K > 0
        self.means_KF.copy_(torch.where(here_K[:, None], moved_KF, self.means_KF))
        self.seen_K |= here_K
