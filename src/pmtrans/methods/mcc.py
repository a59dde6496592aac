"""MCC (Jin, Wang, Long, Wang: Minimum Class Confusion for Versatile Domain Adaptation, ECCV 2020)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.losses.class_confusion import minimum_class_confusion
from pmtrans.methods.method import LabelSmoothing, Method, Moment, Options, Sizes
from pmtrans.model import Model


class MCCOptions(Options):
    """Switches of MCC."""

    label_smoothing: LabelSmoothing = 0.0
    weight: float = Field(1.0, ge=0, description="weight of the class confusion")
    temperature: float = Field(2.5, gt=0, description="temperature of the target's predictions")


class MCC(Method):
    """L = CE(C(F(x^s)), y^s) + mu L_MCC(C(F(x^t)) / T) (Eq. 7): no adversary, nothing but the target's predictions."""

    title = "MCC"
    paper = "Minimum Class Confusion for Versatile Domain Adaptation, ECCV 2020"
    year = 2020
    needs = "one pass of 2B"

    def __init__(self, model: Model, options: MCCOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        logits_s, logits_t = self.model(torch.cat([batch.source_images, batch.target_images])).chunk(2)
        classification = self.source_loss(logits_s, batch.source_labels, self.options.label_smoothing)
        confusion = minimum_class_confusion(logits_t, self.options.temperature)
        return {
            "loss": classification + self.options.weight * confusion,
            "classification": classification.detach(),
            "class_confusion": confusion.detach(),
        }
