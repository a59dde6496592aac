"""TSA (Li et al., Transferable Semantic Augmentation for Domain Adaptation, CVPR 2021).

L = CE(augmented source logits, y_s) - weight I(target): source features are moved towards the target's class means and
along its class covariances, in closed form, while the mutual information of the target predictions is raised.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.losses.entropy import mutual_information
from pmtrans.losses.semantic_augmentation import augmented_logits
from pmtrans.methods.method import Method, Moment, Options, Sizes
from pmtrans.methods.parts.heads import last_linear, through_last_layer
from pmtrans.methods.parts.prototypes import Prototypes
from pmtrans.model import Model
from pmtrans.pseudo_labels import FeatureBank


class TSAOptions(Options):
    """Switches of TSA."""

    strength: float = Field(0.25, ge=0, description="strength of the augmentation at the end of the training")
    weight: float = Field(0.1, ge=0, description="weight of the mutual information on the target")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of the source's class means")


class TSA(Method):
    """Target statistics are those of a memory of all target features with predicted labels, as last seen.

    The source's class means move by momentum instead of a second memory; of an MLP head, its last layer is taken.
    """

    title = "TSA"
    paper = "Transferable Semantic Augmentation for Domain Adaptation, CVPR 2021"
    year = 2021
    needs = "one pass of 2B; a feature per target image, and their logits at each step"

    def __init__(self, model: Model, options: TSAOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        features = last_linear(model.head).in_features
        self.source = Prototypes(sizes.classes, features, options.momentum)
        unseen_M = torch.full((sizes.target_images,), -1)
        self.target = FeatureBank(sizes.target_images, features, labels_M=unseen_M)

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        images = torch.cat([batch.source_images, batch.target_images])
        features_2BF, logits_2BK = through_last_layer(self.model.head, self.model.backbone(images))
        features_s, features_t = features_2BF.chunk(2)
        logits_s, logits_t = logits_2BK.chunk(2)
        self.source.update(features_s, batch.source_labels)
        self.target.store(batch.target_index, features_t, labels_M=logits_t.argmax(1))

        moved_BK = augmented_logits(
            logits_s,
            batch.source_labels,
            last_linear(self.model.head).weight,
            self.source.means_KF,
            self.target.features_MF,
            self.target.labels_M,
            self.options.strength * moment.progress,
        )
        classification = self.source_loss(moved_BK, batch.source_labels, self.options.label_smoothing)
        information = mutual_information(logits_t)
        return {
            "loss": classification - self.options.weight * information,
            "classification": classification.detach(),
            "mutual_information": information.detach(),
        }
