"""What is trained and shipped: a backbone (player F) and a head (player C)."""

from __future__ import annotations

from torch import Tensor, nn

from pmtrans.backbones.backbone import Backbone
from pmtrans.backbones.head import HeadKind, create_head


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
