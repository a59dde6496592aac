"""What is trained and shipped: a backbone (player F) and a head (player C)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.head import HeadKind, create_head
from pmtrans.large_rows import folder_of, rows_beside

CHUNK = 8192  # rows of features on disk that a head sees at a time


class Model(nn.Module):
    """Images in, logits out; every method trains one of these and every verb after ``train`` uses one."""

    def __init__(self, backbone: Backbone, classes: int, head: HeadKind = "linear") -> None:
        super().__init__()
        self.backbone = backbone
        self.head = create_head(head, backbone.features, classes)
        self.head_kind = head
        self.classes = classes

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.backbone(images))
        return logits

    def features_and_logits(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Both in one pass, as pseudo labels and validators need them."""
        features_BF = self.backbone(images)
        return features_BF, self.head(features_BF)


def logits_of(head: nn.Module, features_MF: Tensor) -> Tensor:
    """The logits_MK of features that are known; of features on disk a chunk at a time, and on disk if they are large.

    Without gradients in the second case.
    """
    if folder_of(features_MF) is None:
        logits: Tensor = head(features_MF.float())
        return logits
    with torch.no_grad():
        classes = head(features_MF[:1].float()).shape[1]
        logits_MK = rows_beside(features_MF, classes)
        for start in range(0, len(features_MF), CHUNK):
            logits_MK[start : start + CHUNK] = head(features_MF[start : start + CHUNK].float())
    return logits_MK
