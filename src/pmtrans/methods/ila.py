"""ILA-DA (Sharma, Kalluri, Chandraker: Instance Level Affinity-Based Transfer, CVPR 2021).

L = CE_s + L_adv + weight L_msc: on top of a domain adversary, each source image is drawn to the target images that a
vote of source neighbours gives its class, and pushed from the others. Batches hold several source images of a class,
so that there is somebody to vote; one of 2K pairs or more holds every class. N source images.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from pmtrans.data.batch import Batch
from pmtrans.losses.domain_adversarial import domain_adversarial_loss
from pmtrans.losses.entropy import entropy_weights
from pmtrans.losses.multi_sample_contrastive import affinity, multi_sample_contrastive_loss, neighbour_labels
from pmtrans.methods.cdan import CDANOptions, OuterProduct, RandomSketch
from pmtrans.methods.method import Context, Method, Moment, Player, Sizes
from pmtrans.methods.parts.adversary import Discriminator, discriminator_player, reversal_coefficient, reverse_gradient
from pmtrans.methods.parts.class_runs import paired_runs
from pmtrans.model import Model


class ILAOptions(CDANOptions):
    """Switches of ILA-DA."""

    adversary: Literal["dann", "cdan"] = Field("cdan", description="what the discriminator sees: features, or T(f, g)")
    contrastive_weight: float = Field(1.0, ge=0, description="weight of the multi-sample contrastive loss")
    neighbours: int = Field(3, ge=1, description="source neighbours that vote for a target label")
    kept: float = Field(2 / 3, gt=0, le=1, description="share of a batch's targets that are trusted")
    images_per_class: int | None = Field(
        None,
        ge=1,
        description="source images of one class in a batch; null: as many as let it hold every class, at least 2",
    )


class FeaturesAlone(nn.Module):
    """T(f, g) = f: the discriminator of DANN."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.width = features

    def forward(self, features_BF: Tensor, predictions_BK: Tensor) -> Tensor:
        return features_BF


class ILA(Method):
    """L_msc beside the adversary of DANN or CDAN(+E). Distances are those of features of length 1."""

    title = "ILA-DA"
    paper = "Instance Level Affinity-Based Transfer for Unsupervised Domain Adaptation, CVPR 2021"
    year = 2021
    needs = "one pass of 2B, a discriminator, distances of B x B; one pass over the source at the start"
    chooses_pairs = True

    source_labels_N: Tensor
    pairs_P2: Tensor
    order_seed: Tensor

    def __init__(self, model: Model, options: ILAOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        self.conditioning = _conditioning(options, model.backbone.features, sizes.classes)
        self.discriminator = Discriminator(self.conditioning.width, options.hidden)
        pairs = max(sizes.source_images, sizes.target_images)  # an epoch's
        self.register_buffer("source_labels_N", torch.full((sizes.source_images,), -1))
        self.register_buffer("pairs_P2", torch.zeros(pairs, 2, dtype=torch.long))
        self.register_buffer("order_seed", torch.randint(2**31, ()))
        self.target_images = sizes.target_images
        self.batch = sizes.batch
        self.run = options.images_per_class or max(2, sizes.batch // sizes.classes)

    def players(self, head_ratio: float) -> list[Player]:
        return [
            *super().players(head_ratio),
            discriminator_player(self.discriminator, head_ratio),
        ]

    def choose_pairs(self, moment: Moment, context: Context) -> Tensor:
        if moment.step == 0:
            assert context.source_pass is not None, "ILA-DA needs the source's labels"
            self.source_labels_N.copy_(context.source_pass().labels_N)
        if moment.starts_epoch:
            generator = torch.Generator().manual_seed(int(self.order_seed) + moment.step)
            unlabelled_M = torch.full((self.target_images,), -1)
            labels, pairs = (self.source_labels_N, unlabelled_M), len(self.pairs_P2)
            self.pairs_P2.copy_(paired_runs(*labels, self.model.classes, self.run, pairs, generator, self.batch))
        return self.pairs_P2

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        images = torch.cat([batch.source_images, batch.target_images])
        features_2BF, logits_2BK = self.model.features_and_logits(images)
        features_s, features_t = features_2BF.chunk(2)
        logits_s = logits_2BK.chunk(2)[0]
        classification = self.source_loss(logits_s, batch.source_labels, self.options.label_smoothing)
        domain = self._domain(features_2BF, logits_2BK, moment)
        contrastive = self._contrastive(features_s, features_t, batch.source_labels)
        return {
            "loss": classification + self.options.weight * domain + self.options.contrastive_weight * contrastive,
            "classification": classification.detach(),
            "domain": domain.detach(),
            "contrastive": contrastive.detach(),
        }

    def _domain(self, features_2BF: Tensor, logits_2BK: Tensor, moment: Moment) -> Tensor:
        """L_d(D(R(T(f, g)))), as DANN or CDAN has it."""
        strength = reversal_coefficient(moment, self.options.reversal, self.options.reversal_images)
        joint = self.conditioning(reverse_gradient(features_2BF, strength), logits_2BK.detach().softmax(1))
        d_s, d_t = self.discriminator(joint).chunk(2)
        z_s, z_t = logits_2BK.chunk(2)
        weights = (entropy_weights(z_s), entropy_weights(z_t)) if self.options.entropy else (None, None)
        return domain_adversarial_loss(d_s, d_t, *weights)

    def _contrastive(self, features_s: Tensor, features_t: Tensor, labels_S: Tensor) -> Tensor:
        """L_msc over the targets whose neighbours agree most."""
        affinity_ST = affinity(F.normalize(features_s.float(), dim=1), F.normalize(features_t.float(), dim=1))
        labels_T, ratio_T = neighbour_labels(affinity_ST, labels_S, self.model.classes, self.options.neighbours)
        trusted = ratio_T.topk(max(1, round(self.options.kept * len(ratio_T)))).indices
        kept_T = torch.zeros_like(labels_T, dtype=torch.bool).index_fill_(0, trusted, True)
        return multi_sample_contrastive_loss(affinity_ST, labels_S, labels_T, kept_T)


def _conditioning(options: ILAOptions, features: int, classes: int) -> FeaturesAlone | OuterProduct | RandomSketch:
    if options.adversary == "dann":
        return FeaturesAlone(features)
    if features * classes <= options.largest_product:
        return OuterProduct(features, classes)
    return RandomSketch(features, classes, options.sketch)
