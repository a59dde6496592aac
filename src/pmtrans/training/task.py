"""What a training is about: the domains, how their images are prepared, how many pairs make a batch."""

from __future__ import annotations

from dataclasses import dataclass

from pmtrans.config import Config
from pmtrans.data.cache import ImageCache
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.transforms import Preprocessing
from pmtrans.training.schedule import count_steps


@dataclass(frozen=True)
class Task:
    """What is trained on. The target has no labels here."""

    source: LabelledDomain
    holdout: LabelledDomain
    source_sample: LabelledDomain  # a few training images, for validators that compare with them
    target: Domain
    preprocessing: Preprocessing
    batch_size: int
    cache: ImageCache | None = None

    def steps(self, config: Config) -> tuple[int, int]:
        """(all steps, steps of an epoch)."""
        return count_steps(config.train, len(self.source), len(self.target), self.batch_size)
