"""BNM (Cui et al., Towards Discriminability and Diversity: Batch Nuclear-norm Maximization, CVPR 2020).

L = CE_s - weight ||P_t||_* / min(B, K): the nuclear norm of the target predictions is large when each is certain
(Frobenius norm) and many classes are used (rank). B pairs, K classes.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.losses.nuclear_norm import batch_nuclear_norm_loss
from pmtrans.methods.method import Method, Moment, Options, Sizes
from pmtrans.model import Model


class BNMOptions(Options):
    """Switches of BNM."""

    weight: float = Field(1.0, ge=0, description="weight of the nuclear norm")


class BNM(Method):
    """The sum of both, without a bottleneck before the classifier: transformer features go straight in."""

    title = "BNM"
    paper = "Towards Discriminability and Diversity: Batch Nuclear-norm Maximization, CVPR 2020"
    year = 2020
    needs = "one pass of 2B; singular values of a B x K matrix"

    def __init__(self, model: Model, options: BNMOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        logits_s, logits_t = self.model(torch.cat([batch.source_images, batch.target_images])).chunk(2)
        classification = self.source_loss(logits_s, batch.source_labels, self.options.label_smoothing)
        nuclear_norm = batch_nuclear_norm_loss(logits_t)
        return {
            "loss": classification + self.options.weight * nuclear_norm,
            "classification": classification.detach(),
            "nuclear_norm": nuclear_norm.detach(),
        }
