"""Domains: image paths, with labels or without, and random subsets of a labelled domain.

Training sees its target as a ``Domain``, which has no label field. A ``LabelledDomain`` has a ``Domain`` and is none:
what takes a ``Domain`` cannot be given labels, by mistake or otherwise. A held-out part of the source is what models
are evaluated on with labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pmtrans.data.sampling import ClassBalancedStream, SourceBalancedStream, Stream, random_seed

UNKNOWN = "unknown"  # what an image of no known class is called, by a model and by who labels it


@dataclass(frozen=True)
class Domain:
    """Image paths in a fixed order. ``paths`` are strings (surrogate-escaped where not UTF-8)."""

    origin: Path  # what the user gave: a folder, a list file or a table
    paths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)


@dataclass(frozen=True)
class LabelledDomain:
    """``images`` with one class each: ``classes[labels[i]]`` is the class of ``paths[i]``.

    Of a source that is made of several, ``sources[origins[i]]`` is the one that ``paths[i]`` came from; of a single
    source both are empty. ``warnings``: what was found while it was read.
    """

    images: Domain
    labels: tuple[int, ...]
    classes: tuple[str, ...]
    origins: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def origin(self) -> Path:
        return self.images.origin

    @property
    def paths(self) -> tuple[str, ...]:
        return self.images.paths

    def __len__(self) -> int:
        return len(self.images)


def split_at(source: LabelledDomain, held_places: Sequence[int]) -> tuple[LabelledDomain, LabelledDomain]:
    """(the rest, the images at these places)."""
    held = set(held_places)
    rest = [place for place in range(len(source)) if place not in held]
    return subset(source, rest), subset(source, list(held_places))


def holdout_places(source: LabelledDomain, share: float, seed: int, alike: Sequence[Sequence[int]] = ()) -> list[int]:
    """Places of the held-out part, stratified by class; a class with a single image stays in training.

    Of several sources each gives its own held-out part, as if it were alone. ``alike``: groups of places whose images
    look alike; those of one class are held out together or not at all, unless no group of the class is small enough.
    """
    labels = np.asarray(source.labels)
    if source.sources:
        labels = labels + len(source.classes) * np.asarray(source.origins)
    group_of = {place: number for number, group in enumerate(alike) for place in group}
    random = np.random.default_rng(random_seed(seed, "holdout"))
    held = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        count = min(round(share * len(members)) if share else 0, len(members) - 1)
        if share and count == 0 and len(members) > 3:
            count = 1
        drawn = random.permutation(members).tolist()
        held[_whole_groups(drawn, count, group_of) or drawn[:count]] = True
    places: list[int] = np.flatnonzero(held).tolist()
    return places


def _whole_groups(drawn: Sequence[int], count: int, group_of: Mapping[int, int]) -> list[int]:
    """The first of the drawn places, with all drawn ones of their groups, up to ``count``; larger groups are passed by.

    Where every group is larger, the smallest, if it is at most half of what was drawn; otherwise nothing.
    """
    groups: dict[int, list[int]] = {}  # in the order of their first members; an image that is like no other is alone
    for place in drawn:
        groups.setdefault(group_of.get(place, -1 - place), []).append(place)
    held: list[int] = []
    for group in groups.values():
        if len(held) + len(group) <= count:
            held += group
    smallest = min(groups.values(), key=len)
    return held or (smallest if count and len(smallest) <= len(drawn) / 2 else [])


def sample_domain(source: LabelledDomain, max_images: int, seed: int) -> LabelledDomain:
    """At most ``max_images`` images, drawn at random."""
    drawn = np.random.default_rng(random_seed(seed, "sample")).permutation(len(source))[:max_images]
    return subset(source, np.sort(drawn).tolist())


def subset(source: LabelledDomain, index: Iterable[int]) -> LabelledDomain:
    """The images at these places, in this order."""
    kept = list(index)
    images = Domain(source.origin, tuple(source.paths[i] for i in kept))
    origins = tuple(source.origins[i] for i in kept) if source.sources else ()
    return replace(source, images=images, labels=tuple(source.labels[i] for i in kept), origins=origins)


def with_target_labels(source: LabelledDomain, labelled: LabelledDomain) -> LabelledDomain:
    """The source, and after it labelled target images, which belong to none of several sources."""
    assert source.classes == labelled.classes
    images = Domain(source.origin, source.paths + labelled.paths)
    return replace(source, images=images, labels=source.labels + labelled.labels, origins=(), sources=())


def source_stream(
    seed: int, source: LabelledDomain, by_class: bool
) -> Stream | ClassBalancedStream | SourceBalancedStream:
    """The endless stream of a source: several sources take turns; ``by_class``: and so do the classes of each."""
    if source.sources:
        return SourceBalancedStream(seed, "source", source.labels, source.origins, by_class)
    if by_class:
        return ClassBalancedStream(seed, "source", source.labels)
    return Stream(seed, "source", len(source))
