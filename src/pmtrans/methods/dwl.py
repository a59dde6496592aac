"""DWL (Xiao and Zhang, Dynamic Weighted Learning for Unsupervised Domain Adaptation, CVPR 2021).

min over F, C, max over D, C1, C2 of L_cls + tau L_da + (1 - tau) L_cd (Eq. 14): tau balances aligning the domains (a
discriminator) against telling classes apart (three classifiers that agree), by how far each has come. The paper's
sample weights (Eqs. 4, 5) have no use here: every step draws as many source as target images.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from pmtrans.backbones.head import opposing_classifier
from pmtrans.data.batch import Batch
from pmtrans.losses.classifier_discrepancy import classifier_discrepancy
from pmtrans.losses.domain_adversarial import domain_adversarial_loss
from pmtrans.machine import fallback_device
from pmtrans.methods.mcd import three_steps
from pmtrans.methods.method import Context, Method, Moment, Options, Player, Sizes, named
from pmtrans.methods.parts.adversary import (
    PUBLISHED_RAMP,
    Discriminator,
    ReversalImages,
    discriminator_player,
    reversal_coefficient,
    reverse_gradient,
)
from pmtrans.model import Model


class DWLOptions(Options):
    """Switches of DWL."""

    repeats: int = Field(4, ge=1, description="times the features move per batch (step C)")
    hidden: int = Field(1024, ge=1, description="width of the discriminator")
    weight: float = Field(0.2, ge=0, description="largest factor of the reversed gradient, times tau")
    reversal_images: ReversalImages = PUBLISHED_RAMP


def distance_of_means(source_NF: Tensor, target_MF: Tensor) -> Tensor:
    """MMD (Eq. 8): the squared distance between the domains' mean features."""
    return (source_NF.mean(0) - target_MF.mean(0)).square().sum()


def discriminability(features_NF: Tensor, labels_N: Tensor, classes: int) -> Tensor:
    """max_W J(W) (Eq. 9): tr(S_w^-1 S_b), the scatter between classes against the scatter within; in double."""
    place = fallback_device(features_NF.device)
    centred_NF = (features_NF - features_NF.mean(0)).to(place, torch.float64)
    member_NK = F.one_hot(labels_N, classes).to(place, torch.float64)
    count_K = member_NK.sum(0)
    mean_KF = (member_NK.T @ centred_NF) / count_K.clamp_min(1)[:, None]
    between_FF = mean_KF.T @ (count_K[:, None] * mean_KF)
    within_FF = centred_NF.T @ centred_NF - between_FF
    ridge = 1e-6 * within_FF.diagonal().mean() + 1e-12  # fewer images than features: S_w alone has no inverse
    regular_FF = within_FF + ridge * torch.eye(len(within_FF), dtype=within_FF.dtype, device=within_FF.device)
    ratio_FF: Tensor = torch.linalg.solve(regular_FF, between_FF)
    return ratio_FF.trace().to(features_NF.device, torch.float32)


class DWL(Method):
    """A: C, C1, C2 and F on the source. B: C1, C2 disagree on the target. C: F and C meet them, F against D.

    Step C keeps L_cls, as Eq. 14 has it: repeated without it, the game with D washes the classes out of the features.
    (The authors' code repeats a step on the source as often as step C instead, which costs as many passes more.)
    """

    title = "DWL"
    paper = "Dynamic Weighted Learning for Unsupervised Domain Adaptation, CVPR 2021"
    year = 2021
    needs = (
        "three kinds of steps of 2B, 2 + repeats per batch; two more classifiers, a discriminator; "
        "one pass over source and target per epoch"
    )

    balance: Tensor
    alignment_range: Tensor
    discriminability_range: Tensor

    def __init__(self, model: Model, options: DWLOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        features = model.backbone.features
        self.first_auxiliary = opposing_classifier(features, sizes.classes)
        self.second_auxiliary = opposing_classifier(features, sizes.classes)
        self.discriminator = Discriminator(features, options.hidden, layers=2)
        moving = ("feature_extractor", "classifier", "discriminator")  # D keeps up with F
        self.steps = three_steps(("auxiliaries",), moving, options.repeats)
        self.register_buffer("balance", torch.tensor(0.5))  # tau
        for name in ("alignment_range", "discriminability_range"):  # smallest and largest value seen
            self.register_buffer(name, torch.tensor([torch.inf, -torch.inf]))

    def players(self, head_ratio: float) -> list[Player]:
        auxiliaries = named(self.first_auxiliary, "first_auxiliary") + named(self.second_auxiliary, "second_auxiliary")
        return [
            *super().players(head_ratio),
            Player("auxiliaries", auxiliaries, head_ratio),
            discriminator_player(self.discriminator, head_ratio),
        ]

    @classmethod
    def images_per_pair(cls, options: Any, progress: float) -> int:
        return 3 + 2 * int(options.repeats)  # steps A and B, then C

    def phases(self, moment: Moment) -> dict[str, tuple[str, ...] | None]:
        return self.steps

    @torch.no_grad()
    def before_step(self, moment: Moment, context: Context) -> None:
        """tau = A / (A + 1 - J) (Eq. 12), A the distance and J the discriminability, in their range (Eqs. 10, 11)."""
        if not moment.starts_epoch:
            return
        assert context.source_pass is not None
        source, target = context.source_pass(), context.target_pass()
        classes = source.logits_NK.shape[1]
        distance = distance_of_means(source.features_NF, target.features_MF)
        separation_s = discriminability(source.features_NF, source.labels_N, classes)
        separation_t = discriminability(target.features_MF, target.logits_MK.argmax(1), classes)
        a = _scaled(distance, self.alignment_range)
        j = _scaled((separation_s + separation_t) / 2, self.discriminability_range)
        self.balance.copy_((a + 1e-6) / (a + 1 - j + 2e-6))  # both have arrived: an even balance
        context.metrics["domain_distance"] = distance

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        if moment.phase == "source":
            classifiers = (self.model.head, self.first_auxiliary, self.second_auxiliary)
            classification = self.classification(classifiers, self.model.backbone(batch.source_images), batch)
            return {"loss": classification, "classification": classification.detach()}
        with torch.set_grad_enabled(moment.phase != "classifiers"):  # step B leaves the features as they are
            features = self.model.backbone(torch.cat([batch.source_images, batch.target_images]))
        f_s, f_t = features.chunk(2)
        tau = self.balance
        disagreement = self.disagreement(f_t)
        if moment.phase == "classifiers":
            loss = self.classification((self.first_auxiliary, self.second_auxiliary), f_s, batch)
            return {"loss": loss - (1 - tau) * disagreement, "discrepancy_before": disagreement.detach()}
        strength = reversal_coefficient(moment, self.options.weight, self.options.reversal_images)
        domain = self.domain(reverse_gradient(features, tau * strength))
        classification = self.classification((self.model.head,), f_s, batch)
        return {
            "loss": classification + (1 - tau) * disagreement + domain,
            "discrepancy": disagreement.detach(),
            "domain": domain.detach(),
        }

    def classification(self, classifiers: tuple[torch.nn.Module, ...], f_s: Tensor, batch: Batch) -> Tensor:
        smoothing = self.options.label_smoothing
        losses = [self.source_loss(classifier(f_s), batch.source_labels, smoothing) for classifier in classifiers]
        return torch.stack(losses).sum()

    def domain(self, features: Tensor) -> Tensor:
        """-L_da (Eq. 6): D descends on it, F ascends behind the reversed gradient, tau times as far."""
        d_s, d_t = self.discriminator(features).chunk(2)
        return domain_adversarial_loss(d_s, d_t)

    def disagreement(self, f_t: Tensor) -> Tensor:
        """L_cd (Eq. 7): |C1 - C2| + |C - C1| + |C - C2| on the target."""
        z, z_1, z_2 = self.model.head(f_t), self.first_auxiliary(f_t), self.second_auxiliary(f_t)
        pairs = ((z_1, z_2), (z, z_1), (z, z_2))
        return torch.stack([classifier_discrepancy(one, other) for one, other in pairs]).sum()

    def state(self) -> dict[str, Tensor | float]:
        return {"balance": self.balance}


def _scaled(value: Tensor, range_2: Tensor) -> Tensor:
    """Where the value lies between the extremes seen so far, these included; one half when nothing else was seen."""
    range_2.copy_(torch.stack([torch.minimum(range_2[0], value), torch.maximum(range_2[1], value)]))
    width = range_2[1] - range_2[0]
    return torch.where(width > 0, (value - range_2[0]) / width, torch.full_like(value, 0.5))
