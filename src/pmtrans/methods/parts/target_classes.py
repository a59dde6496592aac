"""Which source classes the target has (``partial``), and which of its images belong to none (``open``).

Found by pseudo labels between steps, and used as weights: of a source image by its class, of a target image by whether
it belongs to a known class. All are 1 where source and target have the same classes, and then this part is not there.

Shapes: B pairs, M target images, K classes.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from pmtrans.methods.method import NO_CLASS, TargetPass
from pmtrans.pseudo_labels import class_weights, otsu_threshold, present_classes, unknown_scores, without_absent

Kind = Literal["partial", "open"]


class TargetClasses(nn.Module):
    """Buffers, so that they survive a crash; before the first update all classes are present and all images known."""

    weights_K: Tensor  # of source classes: 0 where absent, 1 in the mean of those present
    present_K: Tensor
    known_M: Tensor

    def __init__(self, kind: Kind, classes: int, target_images: int) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("weights_K", torch.ones(classes))
        self.register_buffer("present_K", torch.ones(classes, dtype=torch.bool))
        self.register_buffer("known_M", torch.ones(target_images, dtype=torch.bool))

    @torch.no_grad()
    def update(self, target: TargetPass, pinned_M: Tensor | None = None) -> None:
        """Look at the whole target as the model sees it now.

        ``pinned_M``: labels that the user gave, -1 elsewhere. Their classes are present, and their images known, or of
        no known class where the label says so.
        """
        given_M = torch.zeros_like(self.known_M) if pinned_M is None else pinned_M >= 0
        if self.kind == "partial":
            present_K, shares_K = present_classes(target.features_MF, target.logits_MK)
            if pinned_M is not None:
                counts_K = torch.bincount(pinned_M[given_M], minlength=len(present_K)).to(shares_K)
                present_K, shares_K = present_K | (counts_K > 0), shares_K.maximum(counts_K / len(pinned_M))
            self.present_K.copy_(present_K)
            self.weights_K.copy_(class_weights(present_K, shares_K))
        else:
            scores_M = unknown_scores(target.features_MF, target.logits_MK)
            self.known_M.copy_((scores_M <= otsu_threshold(scores_M)) | given_M)
            if pinned_M is not None:
                self.known_M[pinned_M == NO_CLASS] = False

    def known(self, target: TargetPass) -> TargetPass:
        """The images of known classes, with no probability for absent ones: what may carry a pseudo label."""
        logits_MK = without_absent(target.logits_MK, self.present_K) if self.kind == "partial" else target.logits_MK
        return TargetPass(target.features_MF[self.known_M], logits_MK[self.known_M])

    def source_weights(self, labels_B: Tensor) -> Tensor:
        """By the share of their class in the target."""
        return self.weights_K[labels_B]

    def target_weights(self, index_B: Tensor) -> Tensor:
        """0 for images of no known class, the others so that the mean over the target is 1."""
        known_M = self.known_M.float()
        return known_M[index_B] / known_M.mean().clamp_min(1 / len(known_M))

    def state(self) -> dict[str, Tensor | float]:
        """For the log."""
        if self.kind == "partial":
            return {"present_classes": self.present_K.float().sum()}
        return {"unknown_share": 1 - self.known_M.float().mean()}
