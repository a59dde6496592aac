"""DANN (Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016).

A discriminator D tells source from target features; behind a reversed gradient the features confuse it.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.losses.domain_adversarial import domain_adversarial_loss
from pmtrans.methods.method import Method, Moment, Options, Player, Sizes
from pmtrans.methods.parts.adversary import (
    PUBLISHED_RAMP,
    Discriminator,
    ReversalImages,
    discriminator_player,
    reversal_coefficient,
    reverse_gradient,
)
from pmtrans.model import Model


class DANNOptions(Options):
    """Switches of DANN."""

    weight: float = Field(1.0, ge=0, description="weight of the domain loss")
    hidden: int = Field(1024, ge=1, description="width of the discriminator")
    reversal: float = Field(1.0, ge=0, description="largest factor of the reversed gradient")
    reversal_images: ReversalImages = PUBLISHED_RAMP


class DANN(Method):
    """L = L_cls + weight L_d(D(R(f))): R reverses gradients, so D descends on L_d and F ascends."""

    title = "DANN"
    paper = "Domain-Adversarial Training of Neural Networks, JMLR 2016"
    year = 2016
    needs = "one pass of 2B; a discriminator"

    def __init__(self, model: Model, options: DANNOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        self.discriminator = Discriminator(model.backbone.features, options.hidden)

    def players(self, head_ratio: float) -> list[Player]:
        return [*super().players(head_ratio), discriminator_player(self.discriminator, head_ratio)]

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        features = self.model.backbone(torch.cat([batch.source_images, batch.target_images]))
        classification = self.source_loss(
            self.model.head(features[: len(batch.source_labels)]), batch.source_labels, self.options.label_smoothing
        )
        strength = reversal_coefficient(moment, self.options.reversal, self.options.reversal_images)
        d_s, d_t = self.discriminator(reverse_gradient(features, strength)).chunk(2)
        domain = domain_adversarial_loss(d_s, d_t)
        return {
            "loss": classification + self.options.weight * domain,
            "classification": classification.detach(),
            "domain": domain.detach(),
        }
