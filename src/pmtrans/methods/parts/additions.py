"""Losses that may be added to those of any method, each by its weight: MCC and MIC. Weight 0: not there at all."""

from __future__ import annotations

from torch import Tensor, nn

from pmtrans.losses.class_confusion import minimum_class_confusion
from pmtrans.methods.method import Moment
from pmtrans.methods.parts.masked_teacher import MaskedConsistency
from pmtrans.model import Model


class Additions(nn.Module):
    """mcc L_MCC + mic L_M, both on the target images of a batch."""

    def __init__(self, model: Model, mcc: float, mic: float) -> None:
        super().__init__()
        self.mcc = mcc
        self.mic = mic
        self.masked = MaskedConsistency(model) if mic else None

    def forward(
        self, model: Model, images_BCHW: Tensor, features_BF: Tensor
    ) -> tuple[Tensor | float, dict[str, Tensor]]:
        """What is added to the loss, and its parts for the log."""
        parts: dict[str, Tensor] = {}
        if self.mcc:
            parts["class_confusion"] = minimum_class_confusion(model.head(features_BF))
        if self.masked is not None:
            parts["masked_consistency"] = self.masked(model, images_BCHW)
        weights = {"class_confusion": self.mcc, "masked_consistency": self.mic}
        added: Tensor | float = sum(weights[name] * part for name, part in parts.items())
        return added, {name: part.detach() for name, part in parts.items()}

    def after_step(self, model: Model, moment: Moment) -> None:
        if self.masked is not None:
            self.masked.after_step(model, moment)
