"""What every validator reads: the outputs of one model on held-out source and on unlabelled target images.

Shapes: N held-out source images, M target images, P source training images, D and G widths, K classes.
There is no field for target labels, so no validator can be written that looks at them.

Of more than ``MOST_TARGET`` target images evidence holds an even sample, so scores and estimates take the same memory
and time from there on. A share s of n sampled images has a standard error of at most sqrt(s (1 - s) / n), 0.16 points
of 100,000, which the interval of an estimate contains; which images are sampled depends on their number alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from pmtrans.errors import UserError
from pmtrans.files import regular

MANY_CLASSES = 2048  # beyond them, scores look at an even sample of the images: K x K matrices and M K^2 are too much
ENTRIES = 10_000_000  # of that sample's logits
MOST_TARGET = 100_000  # target images; of more, an even sample, on which a share is exact to 0.3 points (95 %)
CHUNK = 4096  # rows looked at together: bounds the memory, never changes a result


@dataclass(frozen=True)
class Evidence:
    """Features and logits of one model, on the CPU; only the held-out source images carry labels.

    ``ground``: the same images in larger size under the untrained backbone, where a run looked at them; of the probe,
    and of what is laid on its features.
    """

    source_features_ND: Tensor
    source_logits_NK: Tensor
    source_labels_N: Tensor
    target_features_MD: Tensor
    target_logits_MK: Tensor
    source_train_features_PD: Tensor | None = None  # for the density ratio of DEV alone
    source_ground_NG: Tensor | None = None
    target_ground_MG: Tensor | None = None

    def __post_init__(self) -> None:
        source, target = self.source_logits_NK, self.target_logits_MK
        if len(source) == 0 or len(target) == 0:
            raise UserError("Selection needs at least one held-out source image and one target image.")
        if source.shape[1:] != target.shape[1:] or source.ndim != 2 or source.shape[1] < 2:
            raise UserError(
                f"Logits of shape {tuple(source.shape)} (source) and {tuple(target.shape)} (target) do not "
                "belong together: both must be images x classes with the same two or more classes."
            )
        if not len(self.source_features_ND) == len(source) == len(self.source_labels_N):
            raise UserError("Held-out source features, logits and labels must have one row per image.")
        if len(self.target_features_MD) != len(target):
            raise UserError("Target features and logits must have one row per image.")
        for ground, rows in ((self.source_ground_NG, source), (self.target_ground_MG, target)):
            if ground is not None and len(ground) != len(rows):
                raise UserError("Features of larger images must have one row per image.")
        if (self.source_ground_NG is None) != (self.target_ground_MG is None):
            raise UserError("Features of larger images are of both domains, or of none.")
        labels = self.source_labels_N
        if labels.is_floating_point() or labels.ndim != 1 or labels.min() < 0 or labels.max() >= source.shape[1]:
            raise UserError("Held-out source labels must be classes of the logits.")
        for name, tensor in vars(self).items():
            if tensor is not None and not _is_finite(tensor):
                raise UserError(f"{name} holds values that are not finite: the model has diverged.")

    def on_features_of(self, other: Evidence) -> Evidence:
        """This model's predictions with another model's features: the ground on which arbitration judges."""
        return replace(
            self,
            source_features_ND=other.source_features_ND,
            target_features_MD=other.target_features_MD,
            source_train_features_PD=None,
            source_ground_NG=other.source_ground_NG,
            target_ground_MG=other.target_ground_MG,
        )

    def without_source_of(self, absent_K: Tensor | None) -> Evidence:
        """Without the held-out source images of these classes, which a partial adaptation gives up; if any are left."""
        if absent_K is None:
            return self
        kept_N = ~absent_K.cpu()[self.source_labels_N]
        if not kept_N.any():
            return self
        return replace(
            self,
            source_features_ND=self.source_features_ND[kept_N],
            source_logits_NK=self.source_logits_NK[kept_N],
            source_labels_N=self.source_labels_N[kept_N],
            source_ground_NG=None if self.source_ground_NG is None else self.source_ground_NG[kept_N],
        )

    def of_target(self, rows_R: Tensor) -> Evidence:
        """With these target images alone."""
        return replace(
            self,
            target_features_MD=self.target_features_MD[rows_R],
            target_logits_MK=self.target_logits_MK[rows_R],
            target_ground_MG=None if self.target_ground_MG is None else self.target_ground_MG[rows_R],
        )

    def sampled(self) -> Evidence:
        """This evidence; with more than ``MANY_CLASSES``, that of an even sample of the images."""
        if self.classes <= MANY_CLASSES:
            return self
        source = even_sample(len(self.source_labels_N), self.classes)
        target = even_sample(len(self.target_logits_MK), self.classes)
        return Evidence(
            self.source_features_ND[source],
            self.source_logits_NK[source],
            self.source_labels_N[source],
            self.target_features_MD[target],
            self.target_logits_MK[target],
            self.source_train_features_PD,
            None if self.source_ground_NG is None else self.source_ground_NG[source],
            None if self.target_ground_MG is None else self.target_ground_MG[target],
        )

    @property
    def classes(self) -> int:
        return self.target_logits_MK.shape[1]

    def source_predictions_N(self) -> Tensor:
        return self.source_logits_NK.argmax(1)

    def target_predictions_M(self) -> Tensor:
        return self.target_logits_MK.argmax(1)


def _is_finite(rows: Tensor) -> bool:
    """In chunks: the question about all rows at once makes a copy of them."""
    return all(bool(torch.isfinite(rows[start : start + CHUNK]).all()) for start in range(0, len(rows), CHUNK))


def even_sample(images: int, classes: int) -> Tensor:
    """Places of images, evenly spaced, so that their logits are at most ``ENTRIES``; all of them if they are fewer."""
    return evenly(images, max(256, ENTRIES // classes))


def evenly(images: int, most: int) -> Tensor:
    """Places of at most so many images, evenly spaced."""
    return torch.linspace(0, images - 1, min(images, most), dtype=torch.float64).round().long()


def judged_places(images: int) -> Tensor:
    """The places of the target images that evidence holds, of so many."""
    return evenly(images, MOST_TARGET)


def judged_rows(rows_M: Tensor) -> Tensor:
    """Of one row per target image, those that evidence holds; on the CPU and in float32."""
    if len(rows_M) > MOST_TARGET:
        rows_M = rows_M[judged_places(len(rows_M)).to(rows_M.device)]
    return rows_M.float().cpu()


def log_probabilities(logits_MK: Tensor, chunk: int = CHUNK) -> Iterator[Tensor]:
    """Chunks of log-softmax in float64: sums over 55,000 images keep all their digits."""
    for start in range(0, len(logits_MK), chunk):
        yield logits_MK[start : start + chunk].double().log_softmax(1)


def mean_probabilities(logits_MK: Tensor, chunk: int = CHUNK) -> Tensor:
    """The mean prediction over all images, of length K."""
    total_K = torch.zeros(logits_MK.shape[1], dtype=torch.float64)
    for log_p in log_probabilities(logits_MK, chunk):
        total_K += log_p.exp().sum(0)
    return total_K / len(logits_MK)


def shannon(probabilities: Tensor) -> Tensor:
    """Entropy in nats over the last dimension, with 0 log 0 = 0."""
    entropy: Tensor = torch.special.entr(probabilities).sum(-1)
    return entropy


def write_evidence(path: Path, evidence: Evidence) -> None:
    """Evidence as a safetensors file."""
    tensors = {name: value.contiguous() for name, value in vars(evidence).items() if value is not None}
    safetensors.torch.save_file(tensors, path)


def read_evidence(path: Path) -> Evidence:
    return Evidence(**safetensors.torch.load_file(regular(path)))
