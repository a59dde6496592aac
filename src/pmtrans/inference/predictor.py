"""Inference with a trained model: paths or images in, classes and calibrated probabilities out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from os import PathLike, fspath
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from pmtrans.data.loader import image_batches
from pmtrans.data.transforms import evaluation_transform
from pmtrans.errors import ModelError, RunError, one_line
from pmtrans.inference.prediction import Prediction, predictions, with_unreadable
from pmtrans.machine import choose_device, copy_to
from pmtrans.run.folder import RunFolder
from pmtrans.run.model_folder import TrainedModel, load_model
from pmtrans.run.model_notes import PriorName

__all__ = ["Prediction", "Predictor", "load", "model_folder"]


class Predictor:
    """A trained model on a device, with the evaluation transform it was trained with.

    ``prior``: the class balance to expect; None: the one that the model has learned.
    """

    def __init__(
        self, trained: TrainedModel, device: str | torch.device | None = None, prior: PriorName | None = None
    ) -> None:
        if prior is not None and trained.balance is None:
            raise ModelError(
                "This model folder has no class balance, which --prior needs: `pmtrans train` with a held-out part of "
                "the source (data.holdout above 0) writes it, `pmtrans adapt`, which sees no source, does not."
            )
        self.trained, self.prior = trained, prior
        self.device = choose_device(device)
        self.model = trained.model.to(self.device).eval()
        self.transform = evaluation_transform(trained.preprocessing)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.trained.classes

    def predict(
        self,
        paths: str | PathLike[str] | Sequence[str | PathLike[str]],
        batch_size: int = 32,
        workers: int = 0,
        abstain_below: float = 0.0,
    ) -> list[Prediction]:
        """One prediction per path, in order; for an unreadable file, ``error`` says why."""
        several = [paths] if isinstance(paths, (str, PathLike)) else paths
        return list(self.stream([fspath(path) for path in several], batch_size, workers, abstain_below))

    def stream(
        self, paths: Sequence[str], batch_size: int = 32, workers: int = 0, abstain_below: float = 0.0
    ) -> Iterator[Prediction]:
        """Like ``predict``, with only a few batches in memory."""
        for batch in self.stream_batches(paths, batch_size, workers, abstain_below):
            yield from batch

    def stream_batches(
        self, paths: Sequence[str], batch_size: int, workers: int, abstain_below: float = 0.0
    ) -> Iterator[list[Prediction]]:
        """A list of predictions per batch of paths, in order for any number of workers."""
        done = 0
        for images, errors in image_batches(paths, self.trained.preprocessing, batch_size, workers, device=self.device):
            readable: Iterator[Prediction] = iter(())
            if len(images):
                readable = self._answers(self.logits(images), abstain_below)
            yield list(with_unreadable([paths[done + i] for i in range(len(errors))], errors, readable))
            done += len(errors)

    def predict_images(self, images: Sequence[Image.Image], abstain_below: float = 0.0) -> list[Prediction]:
        """One prediction per decoded RGB image; their paths are empty."""
        if not images:
            return []
        batch = torch.stack([self.transform(image) for image in images])
        return list(self._answers(self.logits(batch), abstain_below))

    def _answers(self, logits_BK: Tensor, abstain_below: float) -> Iterator[Prediction]:
        trained = self.trained
        return predictions(
            logits_BK, self.classes, trained.temperature, abstain_below, trained.unknown, self._reweigh()
        )

    def _reweigh(self) -> Callable[[Tensor], Tensor] | None:
        prior, balance = self.prior, self.trained.balance
        if prior is None or balance is None:
            return None
        return lambda probabilities_BK: balance.apply(probabilities_BK, prior)

    @torch.inference_mode()
    def logits(self, images: Tensor) -> Tensor:
        """Logits of transformed images, on the predictor's device."""
        logits: Tensor = self.model(copy_to(images, self.device))
        return logits

    @torch.inference_mode()
    def logits_and_attention(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and attention scores (B, rows, columns) of the patches; each map sums to 1."""
        backbone, head = self.model.backbone, self.model.head
        encoding = backbone.encode(backbone.embed(images.to(self.device)), scored=len(images))
        logits = head(encoding.features_BF)
        scores_BN = backbone.attention_scores(encoding, head, logits.argmax(1))
        return logits, scores_BN.unflatten(1, tuple(backbone.grid))


def load(
    path: str | PathLike[str], device: str | torch.device | None = None, prior: PriorName | None = None
) -> Predictor:
    """Load the model of a run folder or a model folder; ``prior``: ``target``, ``source`` or ``uniform``."""
    return Predictor(load_model(model_folder(path)), device, prior)


def model_folder(path: str | PathLike[str]) -> Path:
    """``model/`` of a run folder, or the folder itself."""
    folder = Path(path)
    if (folder / "model").is_dir():
        return folder / "model"
    if RunFolder(folder).config.is_file():
        raise RunError(f"Run {one_line(folder)!r} has no model yet: let `pmtrans train` finish it.")
    return folder
