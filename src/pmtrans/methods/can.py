"""CAN (Kang et al., Contrastive Adaptation Network for Unsupervised Domain Adaptation, CVPR 2019).

L = CE_s + weight CDD: classes of the two domains drawn together, different classes pushed apart, in the features and
in the predictions. Target labels come from spherical k-means that starts at the source's class centres, and batches
are class-aware: each holds a few classes with several images of both domains. N source and M target images.
Clusters of features that know nothing of the task are not its classes: start from a source model.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.losses.contrastive_domain_discrepancy import contrastive_domain_discrepancy
from pmtrans.methods.method import Context, Method, Moment, Options, Sizes
from pmtrans.methods.parts.class_runs import paired_runs
from pmtrans.methods.parts.prototypes import class_means
from pmtrans.model import Model
from pmtrans.pseudo_labels import spherical_kmeans


class CANOptions(Options):
    """Switches of CAN."""

    weight: float = Field(0.3, ge=0, description="weight of the contrastive domain discrepancy")
    kernels: int = Field(5, ge=1, description="Gaussian kernels, a factor 2 apart in bandwidth")
    images_per_class: int = Field(4, ge=1, description="images of one class that come together, in each domain")
    distance: float = Field(1.0, gt=0, le=1, description="farthest (1 - cos)/2 from its centre that a label is kept at")
    smallest_class: int = Field(3, ge=1, description="images below which a target class is left out")


class CAN(Method):
    """Domain-specific batch normalisation does not apply: transformers normalise each token by itself.

    The classification loss is taken on the class-aware source images, not on a second source batch.
    """

    title = "CAN"
    paper = "Contrastive Adaptation Network for Unsupervised Domain Adaptation, CVPR 2019"
    year = 2019
    needs = "one pass of 2B, kernels of 2B x 2B; one pass over source and target per epoch"
    chooses_pairs = True

    pseudo_labels_M: Tensor
    pairs_P2: Tensor
    order_seed: Tensor

    def __init__(self, model: Model, options: CANOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        pairs = max(sizes.source_images, sizes.target_images)  # an epoch's
        self.register_buffer("pseudo_labels_M", torch.full((sizes.target_images,), -1))
        self.register_buffer("pairs_P2", torch.zeros(pairs, 2, dtype=torch.long))
        self.register_buffer("order_seed", torch.randint(2**31, ()))

    def choose_pairs(self, moment: Moment, context: Context) -> Tensor:
        if moment.starts_epoch:
            assert context.source_pass is not None, "CAN needs the source's features"
            source = context.source_pass()
            points_NF = F.normalize(source.features_NF.float(), dim=1)
            centres_KF, _ = class_means(points_NF, source.labels_N, self.model.classes)
            clusters = spherical_kmeans(context.target_pass().features_MF, centres_KF)
            self.pseudo_labels_M.copy_(self._kept_labels(*clusters))
            generator = torch.Generator().manual_seed(int(self.order_seed) + moment.step)
            run, pairs = self.options.images_per_class, len(self.pairs_P2)
            labels = source.labels_N, self.pseudo_labels_M
            self.pairs_P2.copy_(paired_runs(*labels, self.model.classes, run, pairs, generator))
        return self.pairs_P2

    def _kept_labels(self, labels_M: Tensor, distances_M: Tensor) -> Tensor:
        """Labels near enough to their centre, of classes that are large enough then; -1 elsewhere (Section 3.4)."""
        near_M = distances_M <= self.options.distance
        sizes_K = torch.bincount(labels_M[near_M], minlength=self.model.classes)
        return torch.where(near_M & (sizes_K[labels_M] >= self.options.smallest_class), labels_M, -1)

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        images = torch.cat([batch.source_images, batch.target_images])
        features_2BF, logits_2BK = self.model.features_and_logits(images)
        logits_s = logits_2BK.chunk(2)[0]
        classification = self.source_loss(logits_s, batch.source_labels, self.options.label_smoothing)
        pseudo_labels = self.pseudo_labels_M[batch.target_index]
        layers = features_2BF, logits_2BK.float().softmax(1)
        discrepancy = torch.stack([self._discrepancy(layer, batch.source_labels, pseudo_labels) for layer in layers])
        return {
            "loss": classification + self.options.weight * discrepancy.sum(),
            "classification": classification.detach(),
            "discrepancy": discrepancy.sum().detach(),
            "labelled_share": (pseudo_labels >= 0).float().mean(),
        }

    def _discrepancy(self, layer_2BF: Tensor, labels: Tensor, pseudo_labels: Tensor) -> Tensor:
        source, target = layer_2BF.chunk(2)
        return contrastive_domain_discrepancy(
            source, target, labels, pseudo_labels, self.model.classes, self.options.kernels
        )
