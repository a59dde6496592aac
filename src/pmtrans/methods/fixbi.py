"""FixBi (Na et al., Bridging Domain Spaces for Unsupervised Domain Adaptation, CVPR 2021).

Two networks look at two fixed mixtures of source and target, one dominated by each, and teach each other what they are
sure of. Per network: L_fm + L_sp, and once both have been ``alone`` for a while L_fm + L_bim + L_cr.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from pmtrans.data.batch import Batch
from pmtrans.losses.bidirectional_matching import bidirectional_matching
from pmtrans.losses.consistency import consistency_loss
from pmtrans.losses.fixed_ratio_mixup import fixed_ratio_mixup
from pmtrans.losses.self_penalisation import self_penalisation
from pmtrans.methods.method import Method, Moment, Options, Player, Sizes, named
from pmtrans.model import Model


class FixBiOptions(Options):
    """Switches of FixBi."""

    source_ratio: float = Field(0.7, gt=0, lt=1, description="source weight in the source-dominant mixture")
    target_ratio: float = Field(0.3, gt=0, lt=1, description="source weight in the target-dominant mixture")
    alone: float = Field(0.25, ge=0, le=1, description="share of the steps before the two teach each other (k)")
    deviations: float = Field(2.0, ge=0, description="standard deviations below the mean where confidence ends")
    temperature: float = Field(5.0, gt=0, description="first temperature of self-penalisation; it is learned")


@dataclass
class View:
    """What one network says in one step: target and mixed logits, its own labels, and where it is sure of them."""

    target_BK: Tensor
    mixed_BK: Tensor
    middle_BK: Tensor  # of the half-half mixture; empty before matching starts
    labels_B: Tensor
    sure_B: Tensor


class FixBi(Method):
    """``model``, the one that is shipped, is the target-dominant network: it lives nearest to the target.

    All parts learn at one rate, as in the authors' code. Both begin as the model of the start.
    """

    title = "FixBi"
    paper = "FixBi: Bridging Domain Spaces for Unsupervised Domain Adaptation, CVPR 2021"
    year = 2021
    needs = "a second network; one pass of 3B through each (2B before matching)"
    weighs_source = False
    not_reproduced = "the authors start from an adversarially trained model and predict with the sum of both networks"

    def __init__(self, model: Model, options: FixBiOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        self.source_model = copy.deepcopy(model)
        self.temperatures = nn.Parameter(torch.full((2,), options.temperature))

    def players(self, head_ratio: float) -> list[Player]:
        backbone, head = self.source_model.backbone, self.source_model.head
        return [
            *super().players(head_ratio=1.0),
            Player("source_feature_extractor", named(backbone, "source_model.backbone")),
            Player("source_classifier", named(head, "source_model.head")),
            Player("temperatures", (("temperatures", self.temperatures),), decays=False),
        ]

    @classmethod
    def images_per_pair(cls, options: Any, progress: float) -> int:
        return 6 if progress >= options.alone else 4

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        matching = moment.progress >= self.options.alone
        target = self._look(self.model, self.options.target_ratio, batch, matching)
        source = self._look(self.source_model, self.options.source_ratio, batch, matching)
        views, ratios = (target, source), (self.options.target_ratio, self.options.source_ratio)
        mixed = [
            fixed_ratio_mixup(view.mixed_BK, batch.source_labels, view.labels_B, ratio)
            for view, ratio in zip(views, ratios, strict=True)
        ]
        parts = {"fixed_ratio_mixup": torch.stack(mixed).sum()}
        if matching:
            taught = [
                bidirectional_matching(student.target_BK, teacher.labels_B, teacher.sure_B)
                for student, teacher in (views, views[::-1])
            ]
            parts["bidirectional_matching"] = torch.stack(taught).sum()
            parts["consistency"] = consistency_loss(target.middle_BK, source.middle_BK)
        else:
            penalties = [
                self_penalisation(view.target_BK, view.labels_B, ~view.sure_B, temperature)
                for view, temperature in zip(views, self.temperatures, strict=True)
            ]
            parts["self_penalisation"] = torch.stack(penalties).sum()
        return {"loss": torch.stack(list(parts.values())).sum(), **{k: v.detach() for k, v in parts.items()}}

    def _look(self, model: Model, ratio: float, batch: Batch, matching: bool) -> View:
        """One pass over the target, the network's own mixture and, for consistency, the mixture half way."""
        source, target = batch.source_images, batch.target_images
        images = [target, ratio * source + (1 - ratio) * target]
        if matching:
            images.append((source + target) / 2)
        target_BK, mixed_BK, *middle = model(torch.cat(images)).float().split(len(target))
        confidence_B, labels_B = target_BK.detach().softmax(1).max(1)
        threshold = confidence_B.mean() - self.options.deviations * confidence_B.std(unbiased=False)
        sure_B = confidence_B >= threshold
        return View(target_BK, mixed_BK, middle[0] if middle else target_BK[:0], labels_B, sure_B)
