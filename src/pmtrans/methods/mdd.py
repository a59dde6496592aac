"""MDD (Zhang et al., Bridging Theory and Algorithm for Domain Adaptation, ICML 2019).

An adversarial classifier f' looks for the largest margin disparity between the domains; behind a reversed gradient
the features make it small. f' is an MLP on the backbone's own features.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from pmtrans.backbones.head import opposing_classifier
from pmtrans.data.batch import Batch
from pmtrans.losses.margin_disparity import margin_disparity
from pmtrans.methods.method import Method, Moment, Options, Player, Sizes, named
from pmtrans.methods.parts.adversary import ReversalImages, reversal_coefficient, reverse_gradient
from pmtrans.model import Model


class MDDOptions(Options):
    """Switches of MDD."""

    margin: float = Field(4.0, gt=0, description="gamma = exp(rho), how much agreement on the source weighs")
    weight: float = Field(1.0, ge=0, description="weight of the disparity")
    hidden: int = Field(1024, ge=1, description="width of the adversarial classifier's hidden layer")
    reversal: float = Field(0.1, gt=0, description="largest factor of the reversed gradient")
    reversal_images: ReversalImages = 10_000 * 32


class MDD(Method):
    """L = L_cls(f) + weight (gamma L(f'(R(x^s)), f) + L'(f'(R(x^t)), f)), R reversing gradients."""

    title = "MDD"
    paper = "Bridging Theory and Algorithm for Domain Adaptation, ICML 2019"
    year = 2019
    needs = "one pass of 2B; an adversarial classifier"

    def __init__(self, model: Model, options: MDDOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        self.adversary = opposing_classifier(model.backbone.features, sizes.classes, options.hidden)

    def players(self, head_ratio: float) -> list[Player]:
        adversary = Player("adversary", named(self.adversary, "adversary"), head_ratio)
        return [*super().players(head_ratio), adversary]

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        features, logits = self.model.features_and_logits(torch.cat([batch.source_images, batch.target_images]))
        z_s, z_t = logits.chunk(2)
        classification = self.source_loss(z_s, batch.source_labels, self.options.label_smoothing)
        strength = reversal_coefficient(moment, self.options.reversal, self.options.reversal_images)
        a_s, a_t = self.adversary(reverse_gradient(features, strength)).chunk(2)
        disparity = margin_disparity(z_s, z_t, a_s, a_t, self.options.margin)
        return {
            "loss": classification + self.options.weight * disparity,
            "classification": classification.detach(),
            "disparity": disparity.detach(),
        }
