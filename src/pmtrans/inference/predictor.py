"""A trained model, used: paths in, classes and probabilities out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path

import torch

from pmtrans.data.loader import image_batches
from pmtrans.inference.model_folder import TrainedModel, load_model


@dataclass(frozen=True)
class Prediction:
    """What the model says of one image, or why it could not be read."""

    path: str
    label: str | None
    probability: float | None
    probabilities: dict[str, float] | None
    error: str | None = None


class Predictor:
    """Wraps a trained model; the evaluation transform is the one of training."""

    def __init__(self, trained: TrainedModel, device: str | torch.device | None = None) -> None:
        self.trained = trained
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.model = trained.model.to(self.device).eval()

    @property
    def classes(self) -> tuple[str, ...]:
        return self.trained.classes

    def predict(
        self,
        paths: str | PathLike[str] | Sequence[str | PathLike[str]],
        batch_size: int = 32,
        workers: int = 0,
    ) -> list[Prediction]:
        """One prediction per path, in order."""
        single = isinstance(paths, (str, PathLike))
        listed = [fspath(paths)] if single else [fspath(path) for path in paths]  # type: ignore[arg-type, union-attr]
        return list(self.stream(listed, batch_size, workers))

    @torch.inference_mode()
    def stream(self, paths: Sequence[str], batch_size: int = 32, workers: int = 0) -> Iterator[Prediction]:
        """The same without holding more than a batch."""
        done = 0
        for images, reasons in image_batches(paths, self.trained.preprocessing, batch_size, workers):
            rows = iter(())  # type: Iterator[torch.Tensor]
            if len(images):
                rows = iter(self.model(images.to(self.device)).float().softmax(1).cpu())
            for reason in reasons:
                path = paths[done]
                done += 1
                if reason is not None:
                    yield Prediction(path, None, None, None, reason)
                    continue
                row = next(rows)
                best = int(row.argmax())
                named = dict(zip(self.classes, row.tolist(), strict=True))
                yield Prediction(path, self.classes[best], row[best].item(), named)


def load(path: str | PathLike[str], device: str | torch.device | None = None) -> Predictor:
    """Open a run folder or a model folder."""
    folder = Path(path)
    return Predictor(load_model(folder / "model" if (folder / "model").is_dir() else folder), device)
