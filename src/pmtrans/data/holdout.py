"""A part of the source kept back from training, to judge models with labels that we are allowed to see."""

from __future__ import annotations

import numpy as np

from pmtrans.data.domain import LabelledDomain
from pmtrans.data.sampling import random_seed


def split_holdout(source: LabelledDomain, share: float, seed: int) -> tuple[LabelledDomain, LabelledDomain]:
    """(training part, held-out part), stratified; a class with a single image stays whole in training."""
    labels = np.asarray(source.labels)
    random = np.random.default_rng(random_seed(seed, "holdout"))
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = min(round(share * len(members)) if share else 0, len(members) - 1)
        if share and count == 0 and len(members) > 3:
            count = 1
        held[random.permutation(members)[:count]] = True
    return _part(source, np.flatnonzero(~held)), _part(source, np.flatnonzero(held))


def sample_domain(source: LabelledDomain, most: int, seed: int) -> LabelledDomain:
    """At most ``most`` images, drawn at random."""
    drawn = np.random.default_rng(random_seed(seed, "sample")).permutation(len(source))[:most]
    return _part(source, np.sort(drawn))


def _part(source: LabelledDomain, index: np.ndarray[tuple[int], np.dtype[np.int64]]) -> LabelledDomain:
    paths = tuple(source.paths[i] for i in index)
    return LabelledDomain(source.origin, paths, tuple(source.labels[i] for i in index), source.classes)
