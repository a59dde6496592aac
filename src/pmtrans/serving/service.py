"""The service of one run, as plain values that a worker can be sent, and made from them where it is to answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pmtrans.machine import share_of_cores
from pmtrans.serving.keys import ApiKeys
from pmtrans.serving.limits import Limits
from pmtrans.serving.metrics import Metrics
from pmtrans.serving.server import Service

if TYPE_CHECKING:
    from pmtrans.inference.backends import Backend
    from pmtrans.inference.predictor import Predictor


@dataclass(frozen=True)
class ServiceSettings:
    """What is served, and to whom. ``backend``: its name and its file; None: the model itself."""

    run: Path
    device: str | None = None
    backend: tuple[Backend, Path] | None = None
    limits: Limits = field(default_factory=Limits)
    abstain_below: float = 0.0
    keys: ApiKeys | None = None
    workers: int = 1

    def make(self) -> Service:
        """Load the model, make one prediction with it, and put the application around it.

        Torch is imported here: the parent of several workers does without.
        """
        from pmtrans.inference.backends import RuntimePredictor
        from pmtrans.inference.predictor import load
        from pmtrans.serving.app import create_app

        predictor = load(self.run, self.device)
        if self.backend is not None:
            predictor = RuntimePredictor(predictor.trained, *self.backend)
        _make_one_prediction(predictor)
        metrics = Metrics()
        threads = share_of_cores(self.workers)
        app = create_app(predictor, self.limits, self.abstain_below, self.keys, metrics, threads)
        return Service(app, metrics)


def _make_one_prediction(predictor: Predictor) -> None:
    """A model that cannot predict must not accept requests, and the first pass of a process is its slowest."""
    import torch

    size = predictor.trained.preprocessing.image_size
    predictor.logits(torch.zeros(1, 3, size, size))
