"""PMTrans without a source: SHOT's objective (Liang, Hu, Feng, ICML 2020) and PatchMix among target images.

The start is a trained model. Its classifier stays as it is; the features F descend, and the Beta of PatchMix (P)
ascends, on J = weight CE(pseudo labels) - information I(x; y) + alpha (L_f + L_l). Both parents of a mixed image are
target images under their pseudo labels. Shapes: B images, N patches, D token width, F feature width, M target images.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.losses import classification_loss, label_similarity, mixup_feature_loss, mixup_label_loss
from pmtrans.losses.entropy import mutual_information
from pmtrans.methods.method import Context, Method, Moment, Options, Player, Sizes, TargetPass, named
from pmtrans.methods.parts.heads import through_frozen
from pmtrans.mixing import LearnableBeta, label_weights
from pmtrans.mixing.patchmix import PatchMix
from pmtrans.model import Model
from pmtrans.pseudo_labels import kmeans_pseudo_labels, propagated_probabilities


class SourceFreeOptions(Options):
    """Switches of the source-free game."""

    weight: float = Field(0.3, ge=0, description="weight of the cross entropy with pseudo labels")
    information: float = Field(1.0, ge=0, description="weight of information maximisation")
    alpha: float = Field(0.3, ge=0, description="weight of the game on mixed target images; 0: SHOT's objective alone")
    pseudo_labels: Literal["kmeans", "propagation"] = Field(
        "propagation", description="target labels: clusters, or predictions spread over near images"
    )
    keep_head: bool = Field(True, description="the classifier keeps the weights of the given model, as in SHOT")
    beta: Literal["ascend", "fixed"] = Field("ascend", description="how player P moves")
    beta_start: tuple[float, float] = Field((1.0, 1.0), description="first concentrations b, g")
    beta_floor: float = Field(0.3, ge=0, description="lower bound of both concentrations")
    beta_ceiling: float = Field(5.0, gt=0, description="upper bound of both concentrations")
    beta_learning_rate: float = Field(3e-3, gt=0, description="P's own rate")
    temperature: float = Field(1.0, gt=0, description="temperature of the cosine similarities in the feature space")

    @model_validator(mode="after")
    def _starts_in_range(self) -> SourceFreeOptions:
        if not all(self.beta_floor < value < self.beta_ceiling for value in self.beta_start):
            raise ValueError(f"beta_start is not between beta_floor {self.beta_floor} and ceiling {self.beta_ceiling}")
        return self


class SourceFree(Method):
    """No source image is looked at: `pmtrans adapt` moves a shipped model by this."""

    title = "Source-free PMTrans"
    paper = "SHOT's objective (ICML 2020) with the Patch-Mix game (CVPR 2023) among target images"
    year = 2023
    needs = "one pass of 2B; one pass over the target per epoch"
    weighs_source = False
    uses_source = False
    keeps_head = True

    pseudo_labels_M: Tensor

    def __init__(self, model: Model, options: SourceFreeOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        beta = LearnableBeta(options.beta_start, options.beta_floor, options.beta_ceiling)
        beta.requires_grad_(options.beta == "ascend")
        self.mixing = PatchMix(beta, model.backbone.grid)
        self.register_buffer("pseudo_labels_M", torch.zeros(sizes.target_images, dtype=torch.long))

    @classmethod
    def images_per_pair(cls, options: Any, progress: float) -> int:
        return 2  # target and mixed

    def players(self, head_ratio: float) -> list[Player]:
        mixing = named(self.mixing, "mixing")
        rate = self.options.beta_learning_rate
        own = [Player("patchmix", mixing, learning_rate=rate, ascends=True, decays=False)] if mixing else []
        return [*super().players(head_ratio), *own]

    def before_step(self, moment: Moment, context: Context) -> None:
        if not moment.starts_epoch:
            return
        labels_M = self._label(context.target_pass())
        if moment.step > 0:
            context.metrics["pseudo_labels_changed"] = (labels_M != self.pseudo_labels_M).float().mean()
        self.pseudo_labels_M.copy_(labels_M)

    def _label(self, target: TargetPass) -> Tensor:
        if self.options.pseudo_labels == "kmeans":
            return kmeans_pseudo_labels(target.features_MF, logits_MK=target.logits_MK, seeds_M=self.pinned_M)
        p_MK = target.logits_MK.float().softmax(1)
        return propagated_probabilities(target.features_MF, p_MK, seeds_M=self.pinned_M).argmax(1)

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        backbone, labels_B = self.model.backbone, self.pseudo_labels_M[batch.target_index]
        first_BND = backbone.embed(batch.target_images)
        images = len(first_BND)
        mixed = self.mixing(first_BND, _partner(first_BND))  # Definition 1, both parents of the target
        t, i = backbone.encode(torch.cat([first_BND, mixed.tokens_BND]), images).split(images)  # one pass of 2B
        logits_t, logits_i = self._head(torch.cat([t.features_BF, i.features_BF])).chunk(2)

        # SHOT: certain and diverse predictions, and the clusters' labels
        information = mutual_information(logits_t)
        self_training = classification_loss(logits_t, labels_B, self.options.label_smoothing)

        # PMTrans: a mixed image resembles its parents as much as it has of them
        scores_BN = backbone.attention_scores(t, self.model.head, labels_B)
        w_first, w_second = label_weights(mixed.ratio_BN, scores_BN, _partner(scores_BN))
        labels = labels_B, _partner(labels_B)
        features = i.features_BF, t.features_BF, _partner(t.features_BF)
        alike = label_similarity(labels[0]), label_similarity(labels[1])
        feature_space = mixup_feature_loss(*features, *alike, w_first, w_second, self.options.temperature)
        label_space = mixup_label_loss(logits_i, *labels, w_first, w_second)

        shot = self.options.weight * self_training - self.options.information * information
        return {
            "loss": shot + self.options.alpha * (feature_space + label_space),
            "self_training": self_training.detach(),
            "mutual_information": information.detach(),
            "feature_space": feature_space.detach(),
            "label_space": label_space.detach(),
        }

    def _head(self, features_BF: Tensor) -> Tensor:
        """A kept classifier gets no gradient, so the optimiser passes over it."""
        if self.options.keep_head:
            return through_frozen(self.model.head, features_BF)
        logits: Tensor = self.model.head(features_BF)
        return logits

    def after_step(self, moment: Moment) -> None:
        self.mixing.beta.project()

    def state(self) -> dict[str, Tensor | float]:
        b, g = self.mixing.beta.concentrations().detach()
        return {"beta_b": b, "beta_g": g}


def _partner(rows: Tensor) -> Tensor:
    """Of each image the one before it in the batch, whose order is random."""
    return rows.roll(1, 0)
