"""Duplicates inside and across two domains, as groups of paths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pmtrans.data.duplicates import groups, near_pairs
from pmtrans.data.facts import Facts

Groups = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Twins:
    """Groups of paths: of the source alone, of the target alone, and of both, the source's first."""

    within_source: Groups
    within_target: Groups
    across: Groups


class _Picture:
    """All files with the same pixels."""

    def __init__(self) -> None:
        self.source: list[str] = []
        self.target: list[str] = []


def find_twins(
    source_paths: Sequence[str], source: Sequence[Facts], target_paths: Sequence[str], target: Sequence[Facts]
) -> tuple[Twins, Twins]:
    """The equal images; and the equal or near ones. In a group across, each has a twin on the other side."""
    pictures: dict[bytes, _Picture] = defaultdict(_Picture)
    first: dict[bytes, Facts] = {}
    for path, fact in zip(source_paths, source, strict=True):
        pictures[first.setdefault(fact.pixels, fact).pixels].source.append(path)
    for path, fact in zip(target_paths, target, strict=True):
        pictures[first.setdefault(fact.pixels, fact).pixels].target.append(path)
    listed = list(pictures.values())
    alone = [(number, number) for number in range(len(listed))]
    facts = list(first.values())
    near: list[tuple[int, int]] = []
    if facts:
        thumbnails = np.stack([fact.thumbnail for fact in facts])
        pairs = near_pairs([fact.perceptual for fact in facts], thumbnails, [fact.contrast for fact in facts])
        near = [(int(one), int(other)) for one, other in pairs]
    return _twins(listed, alone), _twins(listed, alone + near)


def _twins(pictures: Sequence[_Picture], pairs: Sequence[tuple[int, int]]) -> Twins:
    in_source = [(a, b) for a, b in pairs if pictures[a].source and pictures[b].source]
    in_target = [(a, b) for a, b in pairs if pictures[a].target and pictures[b].target]
    both = [
        (a, b)
        for a, b in pairs
        if (pictures[a].source and pictures[b].target) or (pictures[a].target and pictures[b].source)
    ]
    return Twins(
        _groups([_sources(pictures, group) for group in groups(in_source)]),
        _groups([_targets(pictures, group) for group in groups(in_target)]),
        _groups([_sources(pictures, group) + _targets(pictures, group) for group in groups(both)]),
    )


def _sources(pictures: Sequence[_Picture], group: Sequence[int]) -> tuple[str, ...]:
    return tuple(sorted(path for number in group for path in pictures[number].source))


def _targets(pictures: Sequence[_Picture], group: Sequence[int]) -> tuple[str, ...]:
    return tuple(sorted(path for number in group for path in pictures[number].target))


def _groups(found: list[tuple[str, ...]]) -> Groups:
    return tuple(sorted(group for group in found if len(group) > 1))
