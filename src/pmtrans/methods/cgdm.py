"""CGDM (Du et al., Cross-Domain Gradient Discrepancy Minimization for Unsupervised Domain Adaptation, CVPR 2021).

The three steps of MCD; in step C the features also make the gradients that source and pseudo-labelled target images
give to the classifiers point the same way: L_GD = 1 - cos(g^s, g^t). Both classifiers predict, and both are shipped.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from pmtrans.backbones.head import ClassifierPair
from pmtrans.data.batch import Batch
from pmtrans.errors import ConfigError
from pmtrans.losses import classification_loss
from pmtrans.losses.entropy import mutual_information
from pmtrans.losses.gradient_discrepancy import gradient_discrepancy
from pmtrans.losses.weighted_cross_entropy import weighted_cross_entropy
from pmtrans.methods.mcd import MCD, Logits, MCDOptions
from pmtrans.methods.method import Context, Method, Moment, Player, Sizes, named
from pmtrans.model import Model
from pmtrans.pseudo_labels import kmeans_pseudo_labels


class CGDMOptions(MCDOptions):
    """Switches of CGDM."""

    weight: float = Field(1.0, ge=0, description="weight of the discrepancy")
    class_balance: float = Field(0.0, ge=0, le=0, description="none: the entropy of the mean takes its part")
    gradient_weight: float = Field(0.01, ge=0, description="weight of the gradient discrepancy")
    entropy_weight: float = Field(0.01, ge=0, description="weight of the target's mean entropy minus that of the mean")
    pseudo_label_weight: float = Field(0.01, ge=0, description="weight of the cross entropy on pseudo labels")
    hidden: int = Field(1024, ge=1024, le=1024, description="width of the second classifier, which is shipped")
    refresh_steps: int | None = Field(None, ge=1, description="steps between two k-means; null: an epoch")


class CGDM(MCD):
    """A: L_cls + L_E + L_pseudo. B: L_cls - L_dis + L_E (C1, C2). C: L_dis + L_E + L_GD (F)."""

    title = "CGDM"
    paper = "Cross-Domain Gradient Discrepancy Minimization for Unsupervised Domain Adaptation, CVPR 2021"
    year = 2021
    needs = "three kinds of steps of 2B, 2 + repeats per batch; a second classifier; one pass over the target per epoch"

    options: CGDMOptions
    pseudo_labels_M: Tensor

    def __init__(self, model: Model, options: CGDMOptions, sizes: Sizes) -> None:
        super().__init__(model, options, sizes)
        self.register_buffer("pseudo_labels_M", torch.zeros(sizes.target_images, dtype=torch.long))

    def oppose(self, second: nn.Module) -> None:
        """In the model itself: the sum of both logits labels the target, is judged and shipped."""
        kind = self.model.head_kind
        if kind == "weight_norm":
            raise ConfigError("Key 'method.head' cannot be weight_norm: the classifiers of cgdm are linear or mlp.")
        if kind in ("linear", "mlp"):
            self.model.head = ClassifierPair(self.model.head, second)
            self.model.head_kind = "pair" if kind == "linear" else "mlp_pair"

    @property
    def classifiers(self) -> tuple[nn.Module, nn.Module]:
        pair = self.model.head
        assert isinstance(pair, ClassifierPair)
        return pair.first, pair.second

    @classmethod
    def images_per_pair(cls, options: Any, progress: float) -> int:
        return 2 * (2 + int(options.repeats))

    def players(self, head_ratio: float) -> list[Player]:
        first, second = self.classifiers
        return [
            Method.players(self, head_ratio)[0],
            Player("classifier", named(first, "model.head.first"), ratio=head_ratio),
            Player("second_classifier", named(second, "model.head.second"), ratio=head_ratio),
        ]

    def classify(self, features_BF: Tensor) -> Logits:
        first, second = self.classifiers
        return first(features_BF), second(features_BF)

    def before_step(self, moment: Moment, context: Context) -> None:
        super().before_step(moment, context)
        if moment.step % (self.options.refresh_steps or moment.steps_per_epoch) == 0:
            target = context.target_pass()
            self.pseudo_labels_M.copy_(kmeans_pseudo_labels(target.features_MF, logits_MK=target.logits_MK))

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        with torch.set_grad_enabled(moment.phase != "classifiers"):  # step B leaves the features as they are
            features = self.model.backbone(torch.cat([batch.source_images, batch.target_images]))
        f_s, f_t = features.chunk(2)
        source, target = self.classify(f_s), self.classify(f_t)
        entropy = -self.options.entropy_weight * (mutual_information(target[0]) + mutual_information(target[1]))
        pseudo_labels = self.pseudo_labels_M[batch.target_index]
        if moment.phase == "source":
            classification = self.classification(source, batch)
            loss = classification + entropy + self.options.pseudo_label_weight * self.pseudo(target, pseudo_labels)
            return {"loss": loss, "classification": classification.detach()}
        discrepancy = self.discrepancy(*target)
        if moment.phase == "classifiers":
            loss = self.classification(source, batch) - self.options.weight * discrepancy + entropy
            return {"loss": loss, "discrepancy_before": discrepancy.detach()}
        gradients = self.gradients(source, target, batch.source_labels, pseudo_labels)
        loss = self.options.weight * discrepancy + entropy + self.options.gradient_weight * gradients
        return {"loss": loss, "discrepancy": discrepancy.detach(), "gradient_discrepancy": gradients.detach()}

    def pseudo(self, target: Logits, pseudo_labels: Tensor) -> Tensor:
        return weighted_cross_entropy(target[0], pseudo_labels) + weighted_cross_entropy(target[1], pseudo_labels)

    def gradients(self, source: Logits, target: Logits, labels: Tensor, pseudo_labels: Tensor) -> Tensor:
        """L_GD, mean of the two classifiers."""
        parts = [
            gradient_discrepancy(
                classification_loss(s, labels, smoothing=0.0), weighted_cross_entropy(t, pseudo_labels), module
            )
            for s, t, module in zip(source, target, self.classifiers, strict=True)
        ]
        return (parts[0] + parts[1]) / 2
