"""SCDA (Li et al., Semantic Concentration for Domain Adaptation, ICCV 2021).

Two images of one class should be predicted alike, wrong classes included. The classifier makes their predictions
differ by leaning on what does not matter, the features learn to leave that out (Eqs. 4 to 7).
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.losses.entropy import mutual_information
from pmtrans.losses.jensen_shannon import pairwise_divergence
from pmtrans.methods.method import Method, Moment, Options, Sizes
from pmtrans.methods.parts.adversary import reverse_gradient
from pmtrans.model import Model


class SCDAOptions(Options):
    """Switches of SCDA."""

    weight: float = Field(1.0, ge=0, description="weight of the pairwise divergence at the end of its linear ramp")
    information: float = Field(0.1, ge=0, description="weight of the mutual information of the target")
    temperature: float = Field(10.0, gt=0, description="temperature of the predictions that are compared")
    confidence: float = Field(0.8, ge=0, le=1, description="least confidence of a target image that is paired")


class SCDA(Method):
    """L = L_cls - weight p L_PDD(C(R(f))) - information I(target), p the progress: C ascends on L_PDD, F descends."""

    title = "SCDA"
    paper = "Semantic Concentration for Domain Adaptation, ICCV 2021"
    year = 2021
    needs = "one pass of 2B"

    def __init__(self, model: Model, options: SCDAOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        features, logits = self.model.features_and_logits(torch.cat([batch.source_images, batch.target_images]))
        z_s, z_t = logits.chunk(2)
        classification = self.source_loss(z_s, batch.source_labels, self.options.label_smoothing)
        information = mutual_information(z_t)
        r_s, r_t = self.model.head(reverse_gradient(features)).chunk(2)
        within, across = same_class_pairs(batch.source_labels, z_t, self.options.confidence)
        temperature = self.options.temperature
        divergence = pairwise_divergence(r_s, r_s, within, temperature) + pairwise_divergence(
            r_s, r_t, across, temperature
        )  # L_PDD = L_PDD(s,s) + L_PDD(s,t), Eq. 2
        game = self.options.weight * moment.progress * divergence + self.options.information * information
        return {
            "loss": classification - game,
            "classification": classification.detach(),
            "divergence": divergence.detach(),
            "information": information.detach(),
            "pairs": across.sum().float(),
        }


@torch.no_grad()
def same_class_pairs(labels_B: Tensor, target_BK: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    """Which source images share a class (an image and itself apart), and which source and confident target images."""
    within_BB = labels_B[:, None] == labels_B[None]
    within_BB.fill_diagonal_(False)
    confidence_B, predicted_B = target_BK.float().softmax(1).max(1)
    return within_BB, (labels_B[:, None] == predicted_B[None]) & (confidence_B >= confidence)[None]
