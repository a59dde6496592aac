"""Losses that may be added to those of any method, each by its weight; weight 0: not there at all.

On the target images of a batch: minimum class confusion (MCC), information maximisation (IM), the batch nuclear norm
(BNM) and masked image consistency (MIC). All but the last need no pass of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from pmtrans.data.batch import Batch
from pmtrans.losses.class_confusion import minimum_class_confusion
from pmtrans.losses.information_maximisation import information_maximisation_loss, weighted_information_loss
from pmtrans.losses.nuclear_norm import batch_nuclear_norm_loss
from pmtrans.losses.unknown_separation import unknown_separation_loss
from pmtrans.methods.method import ClassesOfTarget, Moment
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

    def on_classes(
        self, model: Model, batch: Batch, features_BF: Tensor, classes: ClassesOfTarget, separation: float
    ) -> tuple[Tensor | float, dict[str, Tensor]]:
        """The same where the target has other classes than the source: absent ones are not asked for.

        Images of no known class only take part in the separation, which keeps them from looking like one; without
        a known image in the batch the rest is 0.
        """
        logits_BK, weight_B = model.head(features_BF), classes.target_weights(batch.target_index)
        known_BK = logits_BK[weight_B > 0]
        parts = {name: _OF_LOGITS[name](known_BK) for name in self.weights if name in _OF_LOGITS and len(known_BK)}
        if "information" in self.weights:
            parts["information"] = weighted_information_loss(logits_BK, weight_B, classes.present_K)
        if self.masked is not None:
            parts["masked_consistency"] = self.masked(model, batch.target_images)
        added: Tensor | float = sum(self.weights[name] * part for name, part in parts.items())
        if not bool(classes.known_M.all()):
            parts["unknown_separation"] = unknown_separation_loss(logits_BK, weight_B == 0)
            added = added + separation * parts["unknown_separation"]
        return added, {name: part.detach() for name, part in parts.items()}

    def after_step(self, model: Model, moment: Moment) -> None:
        if self.masked is not None:
            self.masked.after_step(model, moment)
