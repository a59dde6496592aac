"""TVT (Yang, Liu, Xu, Huang: Transferable Vision Transformer for Unsupervised Domain Adaptation, WACV 2023)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.losses.domain_adversarial import domain_adversarial_loss
from pmtrans.losses.information_maximisation import information_maximisation_loss
from pmtrans.methods.method import LabelSmoothing, Method, Moment, Options, Player, Sizes, named
from pmtrans.methods.parts.adversary import Discriminator, reversal_coefficient, reverse_gradient
from pmtrans.methods.parts.transferability import encode_by_transferability, head_width
from pmtrans.model import Model


class TVTOptions(Options):
    """Switches of TVT; the weights are those of Office-Home in the paper."""

    label_smoothing: LabelSmoothing = 0.0
    global_adversary: float = Field(0.1, ge=0, description="beta: weight of the discriminator of class tokens")
    patch_adversary: float = Field(0.01, ge=0, description="gamma: weight of the discriminator of patches")
    information: float = Field(0.1, ge=0, description="theta: weight of the information maximisation")


class TVT(Method):
    """L = CE(x^s, y^s) + beta L_dis(class token) + gamma L_pat(patches) + theta L_IM(x^t) (Eq. 10).

    The original weighs the attention at test time too; here it does so in training, since what is shipped is a plain
    timm model. The better the adversary is confused, the closer both are: a weight of 1 changes nothing.
    """

    title = "TVT"
    paper = "TVT: Transferable Vision Transformer for Unsupervised Domain Adaptation, WACV 2023"
    year = 2023
    needs = "one pass of 2B; two discriminators; a backbone with a class token"

    def __init__(self, model: Model, options: TVTOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        self.global_discriminator = Discriminator(model.backbone.features, hidden=192)
        self.patch_discriminator = Discriminator(head_width(model.backbone), hidden=64)

    def players(self, head_ratio: float) -> list[Player]:
        discriminators = (
            *named(self.global_discriminator, "global_discriminator"),
            *named(self.patch_discriminator, "patch_discriminator"),
        )
        return [*super().players(head_ratio), Player("discriminators", discriminators)]  # the backbone's rate

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        reversal = reversal_coefficient(moment)

        def judge(keys_BHNE: Tensor) -> Tensor:
            logits_BHN: Tensor = self.patch_discriminator(reverse_gradient(keys_BHNE, reversal))
            return logits_BHN

        backbone = self.model.backbone
        tokens_2BND = backbone.embed(torch.cat([batch.source_images, batch.target_images]))
        features_2BF, patches_2BHN = encode_by_transferability(backbone, tokens_2BND, judge)
        images_2B = self.global_discriminator(reverse_gradient(features_2BF, reversal))
        logits_s, logits_t = self.model.head(features_2BF).chunk(2)

        classification = self.source_loss(logits_s, batch.source_labels, self.options.label_smoothing)
        global_adversary = domain_adversarial_loss(*images_2B.chunk(2))
        patch_adversary = domain_adversarial_loss(*patches_2BHN.chunk(2))
        information = information_maximisation_loss(logits_t, base=2)
        game = (
            self.options.global_adversary * global_adversary
            + self.options.patch_adversary * patch_adversary
            + self.options.information * information
        )
        return {
            "loss": classification + game,
            "classification": classification.detach(),
            "global_adversary": global_adversary.detach(),
            "patch_adversary": patch_adversary.detach(),
            "information": information.detach(),
        }
