"""The baseline beside every result: cross entropy on the source, nothing else."""

from __future__ import annotations

from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.losses import classification_loss
from pmtrans.methods.method import ClassifierOptions, Method, Moment, Sizes
from pmtrans.model import Model


class SourceOnlyOptions(ClassifierOptions):
    """Switches of the baseline."""


class SourceOnly(Method):
    """L_cls alone: what the backbone brings to the target by itself."""

    title = "Source only"
    paper = "baseline"
    year = 2023
    needs = "one pass of B"
    uses_target = False

    def __init__(self, model: Model, options: SourceOnlyOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:
        logits = self.model(batch.source_images)
        loss = classification_loss(logits, batch.source_labels, self.options.label_smoothing)
        return {"loss": loss, "classification": loss.detach()}
