"""The prediction for one image: class, calibrated probability, entropy, abstention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pmtrans.data.domain import UNKNOWN
from pmtrans.errors import one_line
from pmtrans.selection.calibration import calibrated_probabilities
from pmtrans.selection.unknown_threshold import UnknownThreshold


@dataclass(frozen=True)
class Prediction:
    """One image. If it could not be read, ``error`` says why, the rest is None and ``abstain`` is true.

    With ``unknown_score`` above one half the label is ``unknown``; the probabilities are those of the known classes.
    """

    path: str
    label: str | None
    probability: float | None  # calibrated
    probabilities: dict[str, float] | None
    error: str | None = None
    entropy: float | None = None  # of the calibrated probabilities, in nats: from 0 (certain) to log(K) (uniform)
    abstain: bool = False
    unknown_score: float | None = None  # in [0, 1], of a run with data.target_classes=open

    def top(self, count: int) -> list[tuple[str, float]]:
        """The most probable classes, best first."""
        ranked = sorted((self.probabilities or {}).items(), key=lambda entry: -entry[1])
        return ranked[:count]


def unreadable(path: str, reason: str) -> Prediction:
    """The prediction for an image that could not be read; it counts as an abstention."""
    return Prediction(path, None, None, None, error=reason.removeprefix(f"{one_line(path)}: "), abstain=True)


def predictions(
    logits_BK: Tensor,
    classes: Sequence[str],
    temperature: float = 1.0,
    abstain_below: float = 0.0,
    unknown: UnknownThreshold | None = None,
    reweigh: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[Prediction]:
    """One prediction per row of logits, with an empty path; ``abstain_below`` is a calibrated probability.

    ``unknown``: from when on the label is ``unknown``. ``reweigh``: to probabilities under another class balance.
    """
    probabilities_BK = calibrated_probabilities(logits_BK.detach(), temperature).cpu()
    if reweigh is not None:
        probabilities_BK = reweigh(probabilities_BK)
    best_B, index_B = probabilities_BK.max(1)
    entropy_B = torch.special.entr(probabilities_BK).sum(1)
    strange: list[float] | list[None] = [None] * len(logits_BK)
    if unknown is not None:
        strange = unknown.scores(logits_BK.detach()).tolist()
    rows = zip(probabilities_BK.tolist(), best_B.tolist(), index_B.tolist(), entropy_B.tolist(), strange, strict=True)
    for row, best, index, entropy, score in rows:
        by_class = dict(zip(classes, row, strict=True))
        label = UNKNOWN if score is not None and score > 0.5 else classes[index]
        yield Prediction("", label, best, by_class, None, entropy, best < abstain_below, score)


def with_unreadable(
    paths: Sequence[str], errors: Sequence[str | None], readable: Iterator[Prediction]
) -> Iterator[Prediction]:
    """One prediction per path, in order: the next of ``readable`` where there is no error."""
    for path, error in zip(paths, errors, strict=True):
        yield unreadable(path, error) if error is not None else replace(next(readable), path=path)
