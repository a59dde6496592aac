"""SSRT (Sun, Lu, Zhang, Ling: Safe Self-Refinement for Transformer-based Domain Adaptation, CVPR 2022).

Shapes: B pairs, K classes; hidden states have the images first, whatever the family's layout after that.
"""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from pmtrans.backbones.before_block import before_block
from pmtrans.backbones.blocks import check_growing_batch, transformer_blocks
from pmtrans.data.batch import Batch
from pmtrans.errors import ConfigError
from pmtrans.losses.domain_adversarial import domain_adversarial_loss
from pmtrans.losses.self_refinement import self_refinement_loss
from pmtrans.methods.method import Context, LabelSmoothing, Method, Moment, Options, Player, Sizes
from pmtrans.methods.parts.adversary import Discriminator, discriminator_player, reversal_coefficient, reverse_gradient
from pmtrans.methods.parts.safe_training import SMALLEST_PART, SafeTraining
from pmtrans.model import Model
from pmtrans.processes.rows import all_rows, own_rows


class SSRTOptions(Options):
    """Switches of SSRT."""

    label_smoothing: LabelSmoothing = 0.0
    adversary: float = Field(1.0, ge=0, description="weight of the domain discriminator's loss")
    reversal: float = Field(0.1, ge=0, description="top of the gradient reversal coefficient")
    refinement: float = Field(0.2, ge=0, description="weight of the self-refinement loss")
    perturbation: float = Field(0.3, ge=0, description="alpha: share of the way to another target image")
    confidence: float = Field(0.4, ge=0, lt=1, description="least confidence of a prediction that teaches")
    layers: tuple[int, ...] | None = Field(
        None, description="blocks before which a perturbation may happen; null: at 0, 1/3 and 2/3 of the depth"
    )
    safe: bool = Field(True, description="watch the diversity of predictions, restore and start again after a drop")
    period: int | None = Field(
        None,
        ge=1,
        description="steps between two looks at the diversity; null: a twentieth of the training, at least 62",
    )
    tolerance: float = Field(1.0, ge=0, description="drop of the diversity, in classes, that calls for a restore")


class SSRT(Method):
    """L = CE(x^s, y^s) + L_d + beta r L_SR (Eq. 8), with r and the weights under safe training.

    The bottleneck layers of the original are left out: classifier and discriminator see the backbone's features.
    """

    title = "SSRT"
    paper = "Safe Self-Refinement for Transformer-based Domain Adaptation, CVPR 2022"
    year = 2022
    needs = "one pass of 2B to 3B; a discriminator, a snapshot of the weights"

    def __init__(self, model: Model, options: SSRTOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        check_growing_batch(model.backbone)
        depth = len(transformer_blocks(model.backbone))
        self.layers = options.layers or (0, depth // 3, 2 * depth // 3)  # the paper: {0, 4, 8} of 12
        if not all(0 <= layer < depth for layer in self.layers):
            raise ConfigError(
                f"Key 'method.layers' cannot be {self.layers}: the backbone's blocks are 0 to {depth - 1}."
            )
        self.discriminator = Discriminator(model.backbone.features, layers=2)
        self.safe = SafeTraining(self.guarded() if options.safe else [], options.tolerance)

    def players(self, head_ratio: float) -> list[Player]:
        return [
            *super().players(head_ratio),
            discriminator_player(self.discriminator, head_ratio),
        ]

    def guarded(self) -> list[nn.Module]:
        """What a restore brings back."""
        return [self.model, self.discriminator]

    def period(self, moment: Moment) -> int:
        """T, which is T_r in the beginning too (the paper: 1000 of 10 to 20 thousand steps)."""
        return self.options.period or max(SMALLEST_PART, round(moment.steps / 20))

    def before_step(self, moment: Moment, context: Context) -> None:
        if self.options.safe and self.safe.watch(moment, self.period(moment), self.guarded()):
            context.metrics["restored"] = 1.0

    @classmethod
    def images_per_pair(cls, options: Any, progress: float) -> int:
        return 3  # the perturbed ones join on their way

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        backbone, head = self.model.backbone, self.model.head
        strength = self.safe.strength(moment, self.period(moment))  # r
        pairs = len(batch.source_images)
        layer = self.layers[int(torch.randint(len(self.layers), ()))]
        tokens_2BND = backbone.embed(torch.cat([batch.source_images, batch.target_images]))

        def perturb(hidden_2B: Tensor) -> Tensor:  # Eq. 2: the perturbed copies join the batch
            target_B = hidden_2B.chunk(2)[1]
            others_B = own_rows(all_rows(target_B.detach()).flip(0))
            offset_B = others_B - target_B.detach()
            return torch.cat([hidden_2B, target_B + (self.options.perturbation * strength * offset_B).to(target_B)])

        with before_block(transformer_blocks(backbone)[layer], perturb):
            features_3BF = backbone.encode(tokens_2BND, scored=0).features_BF
        logits_s, logits_t, logits_p = head(features_3BF).split(pairs)

        classification = self.source_loss(logits_s, batch.source_labels, self.options.label_smoothing)
        coefficient = reversal_coefficient(moment, self.options.reversal, 10 * self.period(moment) * moment.pairs)
        domains_2B = self.discriminator(reverse_gradient(features_3BF[: 2 * pairs], coefficient))
        adversary = 2 * domain_adversarial_loss(*domains_2B.chunk(2))
        taught, learning = (logits_t, logits_p) if torch.rand(()) < 0.5 else (logits_p, logits_t)
        refinement = self_refinement_loss(taught, learning, self.options.confidence)
        game = self.options.adversary * adversary + self.options.refinement * strength * refinement
        return {
            "loss": classification + game,
            "classification": classification.detach(),
            "adversary": adversary.detach(),
            "refinement": refinement.detach(),
            "strength": strength,
            "diversity": self.safe.record(logits_t, moment, self.period(moment)),
        }
