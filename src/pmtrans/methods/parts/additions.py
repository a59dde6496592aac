"""Losses that may be added to those of any method, each by its weight; weight 0: not there at all.

On the target images of a batch: minimum class confusion (MCC), information maximisation (IM), the batch nuclear norm
(BNM) and masked image consistency (MIC). All but the last need no pass of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from pmtrans.losses.class_confusion import minimum_class_confusion
from pmtrans.losses.information_maximisation import information_maximisation_loss
from pmtrans.losses.nuclear_norm import batch_nuclear_norm_loss
from pmtrans.methods.method import Moment
from pmtrans.methods.parts.masked_teacher import MaskedConsistency
from pmtrans.model import Model

_OF_LOGITS: dict[str, Callable[[Tensor], Tensor]] = {
    "class_confusion": minimum_class_confusion,
    "information": information_maximisation_loss,
    "nuclear_norm": batch_nuclear_norm_loss,
}


class Additions(nn.Module):
    """sum_j weight_j L_j over the losses whose weight is above 0; ``weights`` by the names of the log."""

    def __init__(self, model: Model, weights: Mapping[str, float]) -> None:
        super().__init__()
        self.weights = {name: weight for name, weight in weights.items() if weight}
        self.masked = MaskedConsistency(model) if "masked_consistency" in self.weights else None

    def forward(
        self, model: Model, images_BCHW: Tensor, features_BF: Tensor
    ) -> tuple[Tensor | float, dict[str, Tensor]]:
        """What is added to the loss, and its parts for the log."""
        used = [name for name in self.weights if name in _OF_LOGITS]
        logits_BK = model.head(features_BF) if used else features_BF
        parts = {name: _OF_LOGITS[name](logits_BK) for name in used}
        if self.masked is not None:
            parts["masked_consistency"] = self.masked(model, images_BCHW)
        added: Tensor | float = sum(self.weights[name] * part for name, part in parts.items())
        return added, {name: part.detach() for name, part in parts.items()}

    def after_step(self, model: Model, moment: Moment) -> None:
        if self.masked is not None:
            self.masked.after_step(model, moment)
