"""Memory banks of a domain: for every image, its feature and further values as last seen in training.

``FeatureBank`` stores; ``NeighbourBank`` also votes pseudo labels, as in the authors' code.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FeatureBank(nn.Module):
    """Features by image index, and with them any of logits, probabilities and labels.

    ``others`` are the initial values of what is stored besides the features, a row for each image. All are buffers,
    so a checkpoint holds them.
    """

    features_MF: Tensor
    logits_MK: Tensor
    probabilities_MK: Tensor
    labels_M: Tensor

    def __init__(self, images: int, features: int, **others: Tensor) -> None:
        super().__init__()
        for name, initial in {"features_MF": torch.zeros(images, features), **others}.items():
            self.register_buffer(name, initial)

    @torch.no_grad()
    def fill(self, features_MF: Tensor, **others: Tensor) -> None:
        """Replace every row, after a pass over the whole domain."""
        for name, rows in {"features_MF": features_MF, **others}.items():
            getattr(self, name).copy_(rows)

    @torch.no_grad()
    def store(self, index_B: Tensor, features_BF: Tensor, **others: Tensor) -> None:
        """Replace the rows of a batch, given the indices of its images in the domain."""
        for name, rows in {"features_MF": features_BF, **others}.items():
            stored = getattr(self, name)
            stored[index_B] = rows.to(stored.dtype)


class NeighbourBank(FeatureBank):
    """Unit-length features and sharpened probabilities of the target; pseudo labels by a vote of the neighbours.

    What is stored is p^2 over its mean of the class in the batch: sharper, and balanced over classes. The authors'
    code has the sum for the mean, a batch size apart, which neither the labels nor a normalised loss can see.
    """

    def __init__(self, images: int, features: int, classes: int, neighbours: int = 5) -> None:
        super().__init__(images, features, probabilities_MK=torch.zeros(images, classes))
        self.neighbours = min(neighbours, max(1, images - 1))

    def fill(self, features_MF: Tensor, **others: Tensor) -> None:
        if "probabilities_MK" in others:
            others["probabilities_MK"] = _balanced(others["probabilities_MK"])
        super().fill(F.normalize(features_MF.float(), dim=1), **others)

    @torch.no_grad()
    def label(self, index_B: Tensor, features_BF: Tensor, probabilities_BK: Tensor) -> tuple[Tensor, Tensor]:
        """Store a batch, then vote: labels_B and their confidences_B, which compare images and are no probabilities.

        The vote is the unweighted mean over the nearest neighbours by cosine, the image itself excluded.
        """
        features_BF = F.normalize(features_BF.float(), dim=1)
        self.store(index_B, features_BF, probabilities_MK=_balanced(probabilities_BK))
        cosine_BM = features_BF @ self.features_MF.T
        cosine_BM.scatter_(1, index_B[:, None], -2.0)
        nearest_BJ = cosine_BM.topk(self.neighbours, dim=1).indices
        vote_BK = self.probabilities_MK[nearest_BJ].mean(1)
        confidence_B, label_B = vote_BK.max(1)
        return label_B, confidence_B


def _balanced(probabilities_BK: Tensor) -> Tensor:
    sharp_BK = probabilities_BK.float().square()
    return sharp_BK / sharp_BK.mean(0, keepdim=True).clamp_min(1e-12)
