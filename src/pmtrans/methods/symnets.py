"""SymNets (Zhang et al., Domain-Symmetric Networks for Adversarial Domain Adaptation, CVPR 2019).

A source classifier C^s and a target classifier C^t, and the two side by side, C^st, with 2K outputs that share one
softmax: the classifiers tell the domains apart with it, the features confuse it by class and by domain.
Suffixes: B images, K classes, J = 2K outputs, first those of C^s.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.backbones.head import create_head
from pmtrans.data.batch import Batch
from pmtrans.losses import classification_loss
from pmtrans.losses.precision import float32_losses
from pmtrans.losses.tradeoff import ramp
from pmtrans.methods.method import Method, Moment, Options, Player, Sizes, named
from pmtrans.methods.parts.entropy import entropy
from pmtrans.methods.parts.heads import through_frozen
from pmtrans.model import Model


class SymNetsOptions(Options):
    """Switches of SymNets."""


def _halves(logits_BJ: Tensor) -> tuple[Tensor, Tensor]:
    """log of the probability mass of C^s and of C^t within C^st."""
    source_BK, target_BK = logits_BJ.log_softmax(1).chunk(2, dim=1)
    return source_BK.logsumexp(1), target_BK.logsumexp(1)


@float32_losses
def domain_loss(source_BJ: Tensor, target_BJ: Tensor) -> Tensor:
    """E^st_domain: source images belong to the half of C^s, target images to that of C^t."""
    return -_halves(source_BJ)[0].mean() - _halves(target_BJ)[1].mean()


@float32_losses
def category_confusion(source_BJ: Tensor, labels_B: Tensor) -> Tensor:
    """F^st_category: a source image is of its class in both halves alike."""
    classes = source_BJ.shape[1] // 2
    return (F.cross_entropy(source_BJ, labels_B) + F.cross_entropy(source_BJ, labels_B + classes)) / 2


@float32_losses
def domain_confusion(target_BJ: Tensor) -> Tensor:
    """F^st_domain: a target image belongs to both halves alike."""
    source_B, target_B = _halves(target_BJ)
    return -(source_B.mean() + target_B.mean()) / 2


@float32_losses
def symmetric_entropy(target_BJ: Tensor) -> Tensor:
    """M^st: entropy of a target image's classes, both halves added up."""
    source_BK, target_BK = target_BJ.chunk(2, dim=1)
    return entropy(torch.logaddexp(source_BK, target_BK)).mean()


class SymNets(Method):
    """C^s, C^t: min E_task(C^s) + E_task(C^t) + E_domain. F: min F_category + lambda (F_domain + M). C^t is kept."""

    title = "SymNets"
    paper = "Domain-Symmetric Networks for Adversarial Domain Adaptation, CVPR 2019"
    year = 2019
    needs = "one pass of 2B; a second classifier"

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
