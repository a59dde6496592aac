"""PCT (Tanwisuth et al., A Prototype-Oriented Framework for Unsupervised Domain Adaptation, NeurIPS 2021).

L = CE_s + weight (L_{t -> mu} + L_{mu -> t}) / 2: target features and the classifier's weights, seen as prototypes mu,
are transported onto each other; the class proportions of the target may be learned on the way.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.losses.prototype_transport import prototype_posterior, prototype_transport_loss
from pmtrans.methods.method import Method, Moment, Options, Sizes
from pmtrans.methods.parts.heads import last_linear, through_last_layer
from pmtrans.model import Model


class PCTOptions(Options):
    """Switches of PCT."""

    weight: float = Field(1.0, ge=0, description="weight of the transport")
    prior_rate: float = Field(0.0, ge=0, le=1, description="how fast class proportions are learned; 0: kept uniform")


class PCT(Method):
    """L_cls and both transports, without the bottleneck of the authors' network; of an MLP head, its last layer."""

    title = "PCT"
    paper = "A Prototype-Oriented Framework for Unsupervised Domain Adaptation, NeurIPS 2021"
    year = 2021
    needs = "one pass of 2B"

    prior_K: Tensor

    def __init__(self, model: Model, options: PCTOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        self.register_buffer("prior_K", torch.full((sizes.classes,), 1 / sizes.classes))

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        features_2BF = self.model.backbone(torch.cat([batch.source_images, batch.target_images]))
        entered_2BF, logits_2BK = through_last_layer(self.model.head, features_2BF)
        features_t = entered_2BF.chunk(2)[1]
        prototypes_KF = last_linear(self.model.head).weight.detach()  # the source alone moves them: else all would meet
        logits_s = logits_2BK.chunk(2)[0]
        classification = self.source_loss(logits_s, batch.source_labels, self.options.label_smoothing)
        if self.options.prior_rate > 0:
            self._learn_proportions(prototypes_KF, features_t)
        transport = prototype_transport_loss(prototypes_KF, features_t, self.prior_K)
        return {
            "loss": classification + self.options.weight * transport,
            "classification": classification.detach(),
            "transport": transport.detach(),
        }

    @torch.no_grad()
    def _learn_proportions(self, prototypes_KF: Tensor, features_BF: Tensor) -> None:
        """p(mu_k) <- (1 - rate) p(mu_k) + rate mean_i pi(mu_k | f_i)."""
        posterior_K = prototype_posterior(prototypes_KF, features_BF, self.prior_K).mean(0)
        self.prior_K.lerp_(posterior_K, self.options.prior_rate)
