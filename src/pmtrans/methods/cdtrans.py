"""CDTrans (Xu, Chen, Wang, Wang, Li, Jin: Cross-Domain Transformer for Unsupervised Domain Adaptation, ICLR 2022).

Shapes: B pairs, N source and M target images, P = N + M pairs that may be chosen, F feature width, K classes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from pmtrans.backbones.attention import use_fused_attention
from pmtrans.data.batch import Batch
from pmtrans.losses import classification_loss
from pmtrans.losses.distillation import distillation_loss
from pmtrans.methods.method import Context, LabelSmoothing, Method, Moment, Options, Sizes
from pmtrans.methods.parts.cross_attention import encode_three_branches
from pmtrans.model import Model
from pmtrans.pseudo_labels import kmeans_pseudo_labels


class CDTransOptions(Options):
    """Switches of CDTrans."""

    label_smoothing: LabelSmoothing = 0.0
    refresh_epochs: int = Field(1, ge=1, description="epochs between two choices of pairs (the paper: 10 of 40)")
    distillation: float = Field(1.0, ge=0, description="weight of the distillation from the cross branch")


class CDTrans(Method):
    """L = CE(z^s, y^s) + CE(z^t, yhat^t) + L_dtl(z^cross, z^t) on pairs that two-way matching chose (Eq. 8).

    This is the paper's second stage; its first, a source model, is the start. The shipped model is the target branch.
    The original's BNNeck is left out: the backbone's features are matched.
    """

    title = "CDTrans"
    paper = "CDTrans: Cross-Domain Transformer for Unsupervised Domain Adaptation, ICLR 2022"
    year = 2022
    needs = "one pass of 3B; a pass over both domains whenever pairs are chosen"
    weighs_source = False
    chooses_pairs = True

    pairs_P2: Tensor
    chosen: Tensor  # how many rows of ``pairs_P2`` are in use

    def __init__(self, model: Model, options: CDTransOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        size = model.backbone.image_size
        use_fused_attention(model.backbone)
        was_training = model.backbone.training
        model.backbone.eval()  # an empty image must leave no trace in statistics
        with torch.no_grad():  # a backbone that cannot look across is refused before the first step
            empty = model.backbone.embed(torch.zeros(1, 3, size, size))
            encode_three_branches(model.backbone, empty, empty)
        model.backbone.train(was_training)
        self.register_buffer("pairs_P2", torch.zeros(sizes.source_images + sizes.target_images, 2, dtype=torch.long))
        self.register_buffer("chosen", torch.zeros((), dtype=torch.long))

    def choose_pairs(self, moment: Moment, context: Context) -> Tensor:
        epoch, place = divmod(moment.step, moment.steps_per_epoch)
        if place == 0:
            due = epoch % self.options.refresh_epochs == 0
            pairs_P2 = self._matched_pairs(context) if due else self.pairs_P2[: int(self.chosen)]
            order = torch.randperm(len(pairs_P2), generator=torch.Generator().manual_seed(epoch))
            self.pairs_P2[: len(pairs_P2)] = pairs_P2[order.to(pairs_P2.device)]
            self.chosen.fill_(len(pairs_P2))
        return self.pairs_P2[: int(self.chosen)]

    def _matched_pairs(self, context: Context) -> Tensor:
        """Two-way: for each source image the nearest target and for each target the nearest source (Section 3.1);
        kept where the target's pseudo label is the source's label. Without any such pair all are kept.
        """
        assert context.source_pass is not None
        source, target = context.source_pass(), context.target_pass()
        pseudo_labels_M = kmeans_pseudo_labels(target.features_MF, logits_MK=target.logits_MK)
        to_target_N = nearest(source.features_NF, target.features_MF)
        to_source_M = nearest(target.features_MF, source.features_NF)
        pairs_P2 = torch.stack(
            [
                torch.cat([torch.arange(len(to_target_N), device=to_target_N.device), to_source_M]),
                torch.cat([to_target_N, torch.arange(len(to_source_M), device=to_source_M.device)]),
            ],
            1,
        )
        agree_P = source.labels_N[pairs_P2[:, 0]] == pseudo_labels_M[pairs_P2[:, 1]]
        return pairs_P2[agree_P] if bool(agree_P.any()) else pairs_P2

    @classmethod
    def images_per_pair(cls, options: Any, progress: float) -> int:
        return 3  # source, target and the branch that attends across

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        smoothing, labels = self.options.label_smoothing, batch.source_labels
        backbone = self.model.backbone
        source_BND, target_BND = backbone.embed(torch.cat([batch.source_images, batch.target_images])).chunk(2)
        features = encode_three_branches(backbone, source_BND, target_BND)
        z_s, z_t, z_cross = self.model.head(torch.cat(features)).chunk(3)
        source = classification_loss(z_s, labels, smoothing)
        target = classification_loss(z_t, labels, smoothing)  # in a kept pair yhat^t = y^s
        distillation = distillation_loss(z_cross, z_t)
        return {
            "loss": source + target + self.options.distillation * distillation,
            "classification": source.detach(),
            "target_classification": target.detach(),
            "distillation": distillation.detach(),
        }

    def state(self) -> dict[str, Tensor | float]:
        return {"pairs_chosen": self.chosen.float()}


@torch.no_grad()
def nearest(queries_QF: Tensor, others_OF: Tensor, chunk: int = 4096) -> Tensor:
    """For each query the index of the nearest other by cosine; never a whole Q x O matrix."""
    directions_OF = F.normalize(others_OF.float(), dim=1)
    pieces = [(F.normalize(some.float(), dim=1) @ directions_OF.T).argmax(1) for some in queries_QF.split(chunk)]
    return torch.cat(pieces)
