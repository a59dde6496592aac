"""MCD (Saito et al., Maximum Classifier Discrepancy for Unsupervised Domain Adaptation, CVPR 2018).

Three steps a batch: (A) both classifiers and the features on the source; (B) the classifiers disagree on the target as
far as the source lets them; (C) the features move until they agree again, several times.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from pmtrans.backbones.head import opposing_classifier
from pmtrans.data.batch import Batch
from pmtrans.losses.class_balance import class_balance_loss
from pmtrans.losses.classifier_discrepancy import classifier_discrepancy
from pmtrans.methods.method import Method, Moment, Options, Player, Sizes, named
from pmtrans.model import Model

Logits = tuple[Tensor, Tensor]  # of the first and of the second classifier


def three_steps(
    classifiers: tuple[str, ...], features: tuple[str, ...], repeats: int
) -> dict[str, tuple[str, ...] | None]:
    """Who moves in the steps A, B and C; C is repeated."""
    return {
        "source": None,
        "classifiers": classifiers,
        **{f"features_{number}": features for number in range(1, repeats + 1)},
    }


class MCDOptions(Options):
    """Switches of MCD."""

    repeats: int = Field(4, ge=1, description="times the features move per batch (step C)")
    weight: float = Field(10.0, ge=0, description="weight of the discrepancy, which is a mean over classes")
    class_balance: float = Field(0.01, ge=0, description="weight of the class-balance term")
    hidden: int = Field(1024, ge=1, description="width of the second classifier's hidden layer")


class MCD(Method):
    """C1 and C2 are adversaries of F; C1 is the classifier that is kept, C2 an MLP whatever C1 is."""

    title = "MCD"
    paper = "Maximum Classifier Discrepancy for Unsupervised Domain Adaptation, CVPR 2018"
    year = 2018
    needs = "three kinds of steps, 2 + repeats per batch; a second classifier"

    def __init__(self, model: Model, options: MCDOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        self.oppose(opposing_classifier(model.backbone.features, sizes.classes, options.hidden))
        self.steps = three_steps(("classifier", "second_classifier"), ("feature_extractor",), options.repeats)

    def oppose(self, second: nn.Module) -> None:
        """Where the second classifier lives; it is gone with the training."""
        self.second_classifier = second

    def players(self, head_ratio: float) -> list[Player]:
        second = Player("second_classifier", named(self.second_classifier, "second_classifier"), head_ratio)
        return [*super().players(head_ratio), second]

    @classmethod
    def images_per_pair(cls, options: Any, progress: float) -> int:
        return (4 if options.class_balance else 3) + int(options.repeats)  # steps A, B and C

    def phases(self, moment: Moment) -> dict[str, tuple[str, ...] | None]:
        return self.steps

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        if moment.phase == "source":  # step A: min over F, C1, C2
            source = self.classify(self.model.backbone(batch.source_images))
            loss = classification = self.classification(source, batch)
            if self.options.class_balance:
                loss = loss + self.balance(self.classify(self.model.backbone(batch.target_images)))
            return {"loss": loss, "classification": classification.detach()}
        if moment.phase == "classifiers":  # step B: min over C1, C2
            with torch.no_grad():
                features = self.model.backbone(torch.cat([batch.source_images, batch.target_images]))
            f_s, f_t = features.chunk(2)
            target = self.classify(f_t)
            discrepancy = self.discrepancy(*target)
            loss = self.classification(self.classify(f_s), batch) - self.options.weight * discrepancy
            if self.options.class_balance:
                loss = loss + self.balance(target)
            return {"loss": loss, "discrepancy_before": discrepancy.detach()}
        discrepancy = self.discrepancy(*self.classify(self.model.backbone(batch.target_images)))
        return {"loss": self.options.weight * discrepancy, "discrepancy": discrepancy.detach()}  # step C: min over F

    def classify(self, features_BF: Tensor) -> Logits:
        return self.model.head(features_BF), self.second_classifier(features_BF)

    def classification(self, logits: Logits, batch: Batch) -> Tensor:
        first, second = (self.source_loss(z, batch.source_labels, self.options.label_smoothing) for z in logits)
        return first + second

    def balance(self, logits: Logits) -> Tensor:
        return self.options.class_balance * (class_balance_loss(logits[0]) + class_balance_loss(logits[1]))

    def discrepancy(self, first_BK: Tensor, second_BK: Tensor) -> Tensor:
        return classifier_discrepancy(first_BK, second_BK)
