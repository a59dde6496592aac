"""What a model says of one image: the class, how sure it is, and whether it would rather not say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pmtrans.errors import one_line
from pmtrans.selection.calibration import calibrated_probabilities


@dataclass(frozen=True)
class Prediction:
    """One image. Where it could not be read, ``error`` says why, the rest is None and ``abstain`` is true."""

    path: str
    label: str | None
    probability: float | None  # calibrated
    probabilities: dict[str, float] | None
    error: str | None = None
    entropy: float | None = None  # of the calibrated probabilities, in nats: 0 is sure, log(K) is a guess
    abstain: bool = False

    def top(self, count: int) -> list[tuple[str, float]]:
        """The most probable classes, best first."""
        ranked = sorted((self.probabilities or {}).items(), key=lambda entry: -entry[1])
        return ranked[:count]


def unreadable(path: str, reason: str) -> Prediction:
    """The row of an image that could not be read: no answer counts as an abstention."""
    return Prediction(path, None, None, None, error=reason.removeprefix(f"{one_line(path)}: "), abstain=True)


def predictions(
    logits_BK: Tensor, classes: Sequence[str], temperature: float = 1.0, abstain_below: float = 0.0
) -> Iterator[Prediction]:
    """One prediction per row of logits, without a path; ``abstain_below`` is a calibrated probability."""
    probabilities_BK = calibrated_probabilities(logits_BK.detach(), temperature).cpu()
    best_B, index_B = probabilities_BK.max(1)
    entropy_B = torch.special.entr(probabilities_BK).sum(1)
    rows = zip(probabilities_BK.tolist(), best_B.tolist(), index_B.tolist(), entropy_B.tolist(), strict=True)
    for row, best, index, entropy in rows:
        named = dict(zip(classes, row, strict=True))
        yield Prediction("", classes[index], best, named, None, entropy, best < abstain_below)


def in_order(paths: Sequence[str], reasons: Sequence[str | None], judged: Iterator[Prediction]) -> Iterator[Prediction]:
    """Predictions of the readable images and the reasons of the others, as one row per path."""
    for path, reason in zip(paths, reasons, strict=True):
        yield unreadable(path, reason) if reason is not None else replace(next(judged), path=path)
