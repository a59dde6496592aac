"""CDAN and CDAN+E (Long et al., Conditional Adversarial Domain Adaptation, NeurIPS 2018).

The discriminator sees features and predictions together: D(T(f, g)) with T the outer product (multilinear map), or its
random sketch where that is too large (randomised multilinear map); ``entropy`` weighs images by how certain their
prediction is (entropy conditioning).
Here T is formed of the backbone's own features: there is no bottleneck.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn

from pmtrans.data.batch import Batch
from pmtrans.losses.domain_adversarial import domain_adversarial_loss
from pmtrans.losses.entropy import entropy_weights
from pmtrans.methods.dann import DANNOptions
from pmtrans.methods.method import Method, Moment, Player, Sizes
from pmtrans.methods.parts.adversary import Discriminator, discriminator_player, reversal_coefficient, reverse_gradient
from pmtrans.model import Model


class CDANOptions(DANNOptions):
    """Switches of CDAN."""

    entropy: bool = Field(False, description="CDAN+E: certain predictions weigh more in the domain loss")
    sketch: int = Field(1024, ge=1, description="width of the random sketch of the outer product")
    largest_product: int = Field(4096, ge=0, description="above this many entries the outer product is sketched")


class OuterProduct(nn.Module):
    """T(f, g) = f x g, all F K products."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.width = features * classes

    def forward(self, features_BF: Tensor, predictions_BK: Tensor) -> Tensor:
        return (features_BF[:, :, None] * predictions_BK[:, None, :]).flatten(1)


class RandomSketch(nn.Module):
    """T(f, g) = (R_f f) * (R_g g) / sqrt(d): inner products are those of f x g on average."""

    features_FD: Tensor
    classes_KD: Tensor

    def __init__(self, features: int, classes: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("features_FD", torch.randn(features, width))
        self.register_buffer("classes_KD", torch.randn(classes, width))

    def forward(self, features_BF: Tensor, predictions_BK: Tensor) -> Tensor:
        sketch_BD = (features_BF @ self.features_FD) * (predictions_BK @ self.classes_KD)
        return sketch_BD / math.sqrt(self.width)


class CDAN(Method):
    """L = L_cls + weight L_d(D(R(T(f, g)))), g = softmax of the logits, detached."""

    title = "CDAN"
    paper = "Conditional Adversarial Domain Adaptation, NeurIPS 2018"
    year = 2018
    needs = "one pass of 2B; a discriminator"

    def __init__(self, model: Model, options: CDANOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        features, classes = model.backbone.features, sizes.classes
        large = features * classes > options.largest_product
        self.conditioning = (
            RandomSketch(features, classes, options.sketch) if large else OuterProduct(features, classes)
        )
        self.discriminator = Discriminator(self.conditioning.width, options.hidden)

    def players(self, head_ratio: float) -> list[Player]:
        return [*super().players(head_ratio), discriminator_player(self.discriminator, head_ratio)]

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        features, logits = self.model.features_and_logits(torch.cat([batch.source_images, batch.target_images]))
        z_s, z_t = logits.chunk(2)
        classification = self.source_loss(z_s, batch.source_labels, self.options.label_smoothing)
        strength = reversal_coefficient(moment, self.options.reversal, self.options.reversal_images)
        joint = self.conditioning(reverse_gradient(features, strength), logits.detach().softmax(1))
        d_s, d_t = self.discriminator(joint).chunk(2)
        weights = (entropy_weights(z_s), entropy_weights(z_t)) if self.options.entropy else (None, None)
        domain = domain_adversarial_loss(d_s, d_t, *weights)
        return {
            "loss": classification + self.options.weight * domain,
            "classification": classification.detach(),
            "domain": domain.detach(),
        }
