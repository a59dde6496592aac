"""Domains: image paths, with labels or without, and random subsets of a labelled domain.

Training sees its target as a ``Domain``, which has no label field. A ``LabelledDomain`` has a ``Domain`` and is none:
what takes a ``Domain`` cannot be given labels, by mistake or otherwise. A held-out part of the source is what models
are evaluated on with labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pmtrans.data.sampling import random_seed


@dataclass(frozen=True)
class Domain:
    """Image paths in a fixed order. ``paths`` are strings (surrogate-escaped where not UTF-8)."""

    origin: Path  # what the user gave: a folder, a list file or a table
    paths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)


@dataclass(frozen=True)
class LabelledDomain:
    """``images`` with one class each: ``classes[labels[i]]`` is the class of ``paths[i]``."""

    images: Domain
    labels: tuple[int, ...]
    classes: tuple[str, ...]

    @property
    def origin(self) -> Path:
        return self.images.origin

    @property
    def paths(self) -> tuple[str, ...]:
        return self.images.paths

    def __len__(self) -> int:
        return len(self.images)


def split_holdout(source: LabelledDomain, share: float, seed: int) -> tuple[LabelledDomain, LabelledDomain]:
    """(training part, held-out part), stratified by class; a class with a single image stays in training."""
    labels = np.asarray(source.labels)
    random = np.random.default_rng(random_seed(seed, "holdout"))
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = min(round(share * len(members)) if share else 0, len(members) - 1)
        if share and count == 0 and len(members) > 3:
            count = 1
        held[random.permutation(members)[:count]] = True
    return _subset(source, np.flatnonzero(~held)), _subset(source, np.flatnonzero(held))


def sample_domain(source: LabelledDomain, max_images: int, seed: int) -> LabelledDomain:
    """At most ``max_images`` images, drawn at random."""
    drawn = np.random.default_rng(random_seed(seed, "sample")).permutation(len(source))[:max_images]
    return _subset(source, np.sort(drawn))


def _subset(source: LabelledDomain, index: np.ndarray[tuple[int], np.dtype[np.int64]]) -> LabelledDomain:
    images = Domain(source.origin, tuple(source.paths[i] for i in index))
    return LabelledDomain(images, tuple(source.labels[i] for i in index), source.classes)
