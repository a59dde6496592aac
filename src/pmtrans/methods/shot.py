"""SHOT (Liang, Hu, Feng: Do We Really Need to Access the Source Data?, ICML 2020), source-free.

The start is a model trained on the source. No source image is looked at again: the classifier stays as it is, and the
features descend on L = mean_i H(p_i) - H(mean_i p_i) + weight CE(pseudo labels). M target images.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.losses import classification_loss
from pmtrans.losses.entropy import mutual_information
from pmtrans.methods.method import Context, Method, Moment, Options, Sizes
from pmtrans.methods.parts.heads import through_frozen
from pmtrans.model import Model
from pmtrans.pseudo_labels import kmeans_pseudo_labels


class SHOTOptions(Options):
    """Switches of SHOT."""

    head_behind_bottleneck = "weight_norm"
    weight: float = Field(0.3, ge=0, description="weight of the cross entropy with pseudo labels")
    information: float = Field(1.0, ge=0, description="weight of information maximisation")


class SHOT(Method):
    """L_ent + L_div + weight L_CE: pseudo labels as the method sets out, and anew at each epoch.

    With ``backbone.bottleneck`` the classifier behind it is weight-normalised, as in the authors' network; without one
    transformer features go straight into a linear head.
    """

    title = "SHOT"
    paper = "Do We Really Need to Access the Source Data? Source Hypothesis Transfer for UDA, ICML 2020"
    year = 2020
    needs = "one pass of B; one pass over the target per epoch"
    weighs_source = False
    uses_source = False
    keeps_head = True

    pseudo_labels_M: Tensor

    def __init__(self, model: Model, options: SHOTOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        self.register_buffer("pseudo_labels_M", torch.zeros(sizes.target_images, dtype=torch.long))

    def before_step(self, moment: Moment, context: Context) -> None:
        if not moment.starts_epoch:
            return
        target = context.target_pass()
        labels_M = kmeans_pseudo_labels(target.features_MF, logits_MK=target.logits_MK, seeds_M=self.pinned_M)
        if moment.step > 0:
            context.metrics["pseudo_labels_changed"] = (labels_M != self.pseudo_labels_M).float().mean()
        self.pseudo_labels_M.copy_(labels_M)

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        # the source hypothesis gets no gradient, so the optimiser passes over it
        logits_t = through_frozen(self.model.head, self.model.backbone(batch.target_images))
        information = mutual_information(logits_t)
        self_training = classification_loss(logits_t, self.pseudo_labels_M[batch.target_index], smoothing=0.0)
        return {
            "loss": self.options.weight * self_training - self.options.information * information,
            "self_training": self_training.detach(),
            "mutual_information": information.detach(),
        }
