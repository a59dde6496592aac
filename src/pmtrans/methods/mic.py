"""MIC (Hoyer, Dai, Wang, Van Gool: Masked Image Consistency for Context-Enhanced Domain Adaptation, CVPR 2023)."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.losses.class_confusion import minimum_class_confusion
from pmtrans.losses.masked_consistency import masked_consistency_loss
from pmtrans.methods.method import LabelSmoothing, Method, Moment, Options, Sizes
from pmtrans.methods.parts.masked_teacher import MaskedConsistency
from pmtrans.model import Model


class MICOptions(Options):
    """Switches of MIC."""

    label_smoothing: LabelSmoothing = 0.0
    weight: float = Field(1.0, ge=0, description="weight of the masked consistency")
    mcc: float = Field(0.0, ge=0, description="weight of the class confusion; the paper's best results add it")
    teacher_rate: float = Field(0.9, ge=0, lt=1, description="rate of the moving average that the teacher is")
    mask_block: float = Field(64 / 224, gt=0, le=1, description="side of a hidden square / side of the image")
    mask_ratio: float = Field(0.7, ge=0, lt=1, description="share of the squares that are hidden")


class MIC(Method):
    """L = CE(C(F(x^s)), y^s) + lambda L_M(x^t), with a teacher that is the mean of past students (Eq. 6 to 9).

    The paper adds L_M to an adversarial method; here it stands alone, or with MCC, and PMTrans takes it by a switch.
    """

    title = "MIC"
    paper = "MIC: Masked Image Consistency for Context-Enhanced Domain Adaptation, CVPR 2023"
    year = 2023
    needs = "one pass of 2B (3B with MCC), one of B without gradient; a teacher's weights"

    def __init__(self, model: Model, options: MICOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        self.masked = MaskedConsistency(model, options.teacher_rate, options.mask_block, options.mask_ratio)

    @classmethod
    def images_per_pair(cls, options: Any, progress: float) -> int:
        return 4 if options.mcc else 3  # the teacher's included

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        views = [batch.source_images, self.masked.mask(batch.target_images)]
        if self.options.mcc:
            views.append(batch.target_images)
        logits_s, logits_m, *logits_t = self.model(torch.cat(views)).split(len(batch.source_images))
        classification = self.source_loss(logits_s, batch.source_labels, self.options.label_smoothing)
        masked = masked_consistency_loss(logits_m, self.masked.teacher(batch.target_images))
        confusion = minimum_class_confusion(logits_t[0]) if logits_t else classification.new_zeros(())
        return {
            "loss": classification + self.options.weight * masked + self.options.mcc * confusion,
            "classification": classification.detach(),
            "masked_consistency": masked.detach(),
            "class_confusion": confusion.detach(),
        }

    def after_step(self, moment: Moment) -> None:
        self.masked.after_step(self.model, moment)
