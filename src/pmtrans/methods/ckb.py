"""CKB (Luo and Ren, Conditional Bures Metric for Domain Adaptation, CVPR 2021).

L = CE_s + weight d^2_CKB + entropy_weight H(target): the covariance operators of features given labels are brought
together in the Bures geometry, so that classes are aligned and not only domains; optionally MMD on the labels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.losses.entropy import entropy
from pmtrans.losses.kernel_bures import conditional_kernel_bures_loss
from pmtrans.losses.maximum_mean_discrepancy import maximum_mean_discrepancy
from pmtrans.methods.method import Method, Moment, Options, Sizes
from pmtrans.model import Model


class CKBOptions(Options):
    """Switches of CKB."""

    weight: float = Field(1.0, ge=0, description="weight of the conditional kernel Bures distance")
    epsilon: float = Field(1e-2, gt=0, description="regulariser of the conditional operators")
    entropy_weight: float = Field(0.05, ge=0, description="weight of the target entropy")
    entropy_start: float = Field(0.1, ge=0, le=1, description="share of the steps before the entropy counts")
    label_mmd: float = Field(0.0, ge=0, description="weight of MMD between labels and predictions (CKB+MMD)")


class CKB(Method):
    """Target labels are the soft predictions.

    The paper begins with the source alone for 5 epochs, which a source model as the start stands for; the entropy
    follows 5 epochs after the distance, here a share of the steps.
    """

    title = "CKB"
    paper = "Conditional Bures Metric for Domain Adaptation, CVPR 2021"
    year = 2021
    needs = "one pass of 2B; Cholesky and singular values of B x B matrices"

    def __init__(self, model: Model, options: CKBOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        images = torch.cat([batch.source_images, batch.target_images])
        features_2BF, logits_2BK = self.model.features_and_logits(images)
        features_s, features_t = features_2BF.chunk(2)
        logits_s, logits_t = logits_2BK.chunk(2)
        classification = self.source_loss(logits_s, batch.source_labels, self.options.label_smoothing)
        labels_s = F.one_hot(batch.source_labels, self.model.classes).float()
        labels_t = logits_t.float().softmax(1)
        given_t = labels_t.detach()  # what the features are conditioned on is not moved to bring them together
        bures = conditional_kernel_bures_loss(features_s, features_t, labels_s, given_t, self.options.epsilon)
        loss = classification + self.options.weight * bures
        parts = {"classification": classification.detach(), "bures": bures.detach()}
        if self.options.label_mmd > 0:
            mmd = maximum_mean_discrepancy(labels_s, labels_t, count=1)
            loss = loss + self.options.label_mmd * mmd
            parts["label_mmd"] = mmd.detach()
        if moment.progress >= self.options.entropy_start:
            uncertainty = entropy(logits_t).mean()
            loss = loss + self.options.entropy_weight * uncertainty
            parts["entropy"] = uncertainty.detach()
        return {"loss": loss, **parts}
