"""SymNets (Zhang et al., Domain-Symmetric Networks for Adversarial Domain Adaptation, CVPR 2019).

A source classifier C^s and a target classifier C^t, and the two side by side, C^st, with 2K outputs that share one
softmax: the classifiers tell the domains apart with it, the features confuse it by class and by domain.
Suffixes: B images, K classes, J = 2K outputs, first those of C^s.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.backbones.head import create_head
from pmtrans.data.batch import Batch
from pmtrans.losses import classification_loss
from pmtrans.losses.category_confusion import category_confusion
from pmtrans.losses.domain_confusion import domain_confusion
from pmtrans.losses.domain_halves import domain_loss
from pmtrans.losses.symmetric_entropy import symmetric_entropy
from pmtrans.losses.tradeoff import ramp
from pmtrans.methods.method import Method, Moment, Options, Player, Sizes, named
from pmtrans.methods.parts.heads import through_frozen
from pmtrans.model import Model


class SymNetsOptions(Options):
    """Switches of SymNets."""


class SymNets(Method):
    """C^s, C^t: min E_task(C^s) + E_task(C^t) + E_domain. F: min F_category + lambda (F_domain + M). C^t is kept."""

    title = "SymNets"
    paper = "Domain-Symmetric Networks for Adversarial Domain Adaptation, CVPR 2019"
    year = 2019
    needs = "one pass of 2B; a second classifier"
    weighs_source = False

    def __init__(self, model: Model, options: SymNetsOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        self.source_classifier = create_head(options.head, model.backbone.features, sizes.classes)

    def players(self, head_ratio: float) -> list[Player]:
        source = Player("source_classifier", named(self.source_classifier, "source_classifier"), head_ratio)
        return [*super().players(head_ratio), source]

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        features = self.model.backbone(torch.cat([batch.source_images, batch.target_images]))
        labels, smoothing = batch.source_labels, self.options.label_smoothing

        # the classifiers' loss, features standing still
        z_s, z_t = self.source_classifier(features.detach()), self.model.head(features.detach())
        st_s, st_t = torch.cat([z_s, z_t], 1).chunk(2)
        task_s, task_t = (classification_loss(z[: len(labels)], labels, smoothing) for z in (z_s, z_t))
        task = task_s + task_t
        domain = domain_loss(st_s, st_t)

        # the features' loss, classifiers standing still
        both = (through_frozen(self.source_classifier, features), through_frozen(self.model.head, features))
        st_s, st_t = torch.cat(both, 1).chunk(2)
        category = category_confusion(st_s, labels)
        confusion = domain_confusion(st_t) + symmetric_entropy(st_t)
        return {
            "loss": task + domain + category + ramp(moment.progress) * confusion,
            "classification": task.detach(),
            "domain": domain.detach(),
            "category_confusion": category.detach(),
            "domain_confusion": confusion.detach(),
        }
