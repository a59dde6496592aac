"""Duplicate images within and across two domains, as groups of paths.

Equal images have the same pixels. Near-duplicates differ in at most ``MAX_BITS`` of 64 perceptual hash bits, and their
colour thumbnails correlate by at least ``MIN_CORRELATION``: copies that were resized, recompressed or slightly cropped,
and frames of the same scene.

The search uses buckets instead of comparing all pairs: if two 64-bit hashes differ in at most 10 bits, one of their
four 16-bit quarters differs in at most 2 (pigeonhole), so only hashes that share such a quarter are compared.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pmtrans.data.checking.facts import Facts

MAX_BITS = 10
MIN_CORRELATION = 0.9
MIN_CONTRAST = 4.0  # grey levels: the hash of a blank image is noise
_CROWD = 32  # images with the same hash that are all compared with each other
_QUARTERS = 4
_REACH = MAX_BITS // _QUARTERS  # bits in which at least one quarter may differ at most
_BIT_COUNTS = np.array([bin(value).count("1") for value in range(1 << 16)], dtype=np.uint8)
Groups = tuple[tuple[str, ...], ...]
Pairs = NDArray[np.int64]  # n x 2, each pair once, the smaller index first


@dataclass(frozen=True)
class Duplicates:
    """Groups of paths: within the source, within the target, and across both (source paths first)."""

    within_source: Groups
    within_target: Groups
    across: Groups


class _Picture:
    """All files with the same pixels."""

    def __init__(self) -> None:
        self.source: list[str] = []
        self.target: list[str] = []


def find_duplicates(
    source_paths: Sequence[str], source: Sequence[Facts], target_paths: Sequence[str], target: Sequence[Facts]
) -> tuple[Duplicates, Duplicates]:
    """(equal images, equal and near images). In a group across, each image has a match in the other domain."""
    pictures: dict[bytes, _Picture] = defaultdict(_Picture)
    first: dict[bytes, Facts] = {}
    for path, fact in zip(source_paths, source, strict=True):
        pictures[first.setdefault(fact.pixel_digest, fact).pixel_digest].source.append(path)
    for path, fact in zip(target_paths, target, strict=True):
        pictures[first.setdefault(fact.pixel_digest, fact).pixel_digest].target.append(path)
    distinct = list(pictures.values())
    itself = [(number, number) for number in range(len(distinct))]
    facts = list(first.values())
    near: list[tuple[int, int]] = []
    if facts:
        thumbnails = np.stack([fact.thumbnail for fact in facts])
        pairs = near_pairs([fact.perceptual_hash for fact in facts], thumbnails, [fact.contrast for fact in facts])
        near = [(int(one), int(other)) for one, other in pairs]
    return _group_paths(distinct, itself), _group_paths(distinct, itself + near)


def _group_paths(pictures: Sequence[_Picture], pairs: Sequence[tuple[int, int]]) -> Duplicates:
    in_source = [(a, b) for a, b in pairs if pictures[a].source and pictures[b].source]
    in_target = [(a, b) for a, b in pairs if pictures[a].target and pictures[b].target]
    across = [
        (a, b)
        for a, b in pairs
        if (pictures[a].source and pictures[b].target) or (pictures[a].target and pictures[b].source)
    ]
    return Duplicates(
        _sorted_groups([_sources(pictures, group) for group in groups(in_source)]),
        _sorted_groups([_targets(pictures, group) for group in groups(in_target)]),
        _sorted_groups([_sources(pictures, group) + _targets(pictures, group) for group in groups(across)]),
    )


def _sources(pictures: Sequence[_Picture], group: Sequence[int]) -> tuple[str, ...]:
    return tuple(sorted(path for number in group for path in pictures[number].source))


def _targets(pictures: Sequence[_Picture], group: Sequence[int]) -> tuple[str, ...]:
    return tuple(sorted(path for number in group for path in pictures[number].target))


def _sorted_groups(found: list[tuple[str, ...]]) -> Groups:
    return tuple(sorted(group for group in found if len(group) > 1))


def groups(pairs: Iterable[Sequence[int]]) -> list[list[int]]:
    """Connected components of the pairs, each sorted, in the order of their first members."""
    parent: dict[int, int] = {}

    def root(node: int) -> int:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for one, other in pairs:
        low, high = sorted((root(int(one)), root(int(other))))
        parent[high] = low
    members = defaultdict(list)
    for node in sorted(parent):
        members[root(node)].append(node)
    return list(members.values())


def near_pairs(hashes: Sequence[int], thumbnails: NDArray[np.uint8], contrasts: Sequence[float]) -> Pairs:
    """Index pairs of images that look alike.

    If more than ``_CROWD`` images have the same hash, the others are compared with the first ``_CROWD`` only.
    """
    kept = np.flatnonzero(np.asarray(contrasts) >= MIN_CONTRAST)
    values = np.array(hashes, dtype=np.uint64)[kept]
    order = np.argsort(values, kind="stable")
    _, starts, counts = np.unique(values[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(starts, counts)
    searched = np.sort(order[rank < _CROWD])
    late = rank >= _CROWD
    leaders = np.repeat(starts, counts)[late, None] + np.arange(_CROWD)
    crowd = np.stack([order[leaders], np.repeat(order[late, None], _CROWD, axis=1)], axis=2).reshape(-1, 2)
    candidates = np.concatenate([crowd, searched[_close_pairs(values[searched])]])
    return _correlated(np.sort(kept[candidates], axis=1), thumbnails)


def _close_pairs(values: NDArray[np.uint64]) -> Pairs:
    """Index pairs of 64-bit values that differ in at most ``MAX_BITS`` bits."""
    found = []
    for quarter in range(_QUARTERS):
        keys = ((values >> np.uint64(16 * quarter)) & np.uint64(0xFFFF)).astype(np.int64)
        order = np.argsort(keys, kind="stable")
        counts = np.bincount(keys, minlength=1 << 16)
        starts = np.cumsum(counts) - counts
        for mask in _masks():
            wanted = keys ^ mask
            found.append(_close_in_buckets(values, order, starts[wanted], counts[wanted]))
    pairs = np.concatenate(found)
    return np.unique(pairs, axis=0) if len(pairs) else pairs


def _close_in_buckets(
    values: NDArray[np.uint64], order: Pairs, starts: Pairs, counts: Pairs, block: int = 1 << 22
) -> Pairs:
    """Pairs of each value with the close ones of its bucket ``order[start : start + count]``."""
    found = [np.empty((0, 2), dtype=np.int64)]
    ends = np.cumsum(counts)
    begin = 0
    while begin < len(values):  # blocks bound the memory, even if many hashes share a bucket
        done = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, done + block, side="right")))
        sizes = counts[begin:end]
        one = np.repeat(np.arange(begin, end), sizes)
        offsets = np.arange(len(one)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        other = order[np.repeat(starts[begin:end], sizes) + offsets]
        one, other = one[one < other], other[one < other]
        close = _distance(values[one], values[other]) <= MAX_BITS
        found.append(np.stack([one[close], other[close]], axis=1))
        begin = end
    return np.concatenate(found)


def _masks() -> list[int]:
    bits = range(16)
    return [
        sum(1 << bit for bit in chosen) for size in range(_REACH + 1) for chosen in itertools.combinations(bits, size)
    ]


def _distance(one: NDArray[np.uint64], other: NDArray[np.uint64]) -> NDArray[np.uint8]:
    quarters = np.ascontiguousarray(one ^ other).view(np.uint16).reshape(-1, _QUARTERS)
    count: NDArray[np.uint8] = _BIT_COUNTS[quarters].sum(axis=1, dtype=np.uint8)
    return count


def _correlated(pairs: Pairs, thumbnails: NDArray[np.uint8], block: int = 1 << 14) -> Pairs:
    kept = [np.empty((0, 2), dtype=np.int64)]
    for start in range(0, len(pairs), block):
        chunk = pairs[start : start + block]
        one, other = _centred(thumbnails[chunk[:, 0]]), _centred(thumbnails[chunk[:, 1]])
        kept.append(chunk[(one * other).sum(axis=1) >= MIN_CORRELATION])
    return np.concatenate(kept)


def _centred(thumbnails: NDArray[np.uint8]) -> NDArray[np.float32]:
    flat = thumbnails.reshape(len(thumbnails), -1).astype(np.float32)
    flat -= flat.mean(axis=1, keepdims=True)
    flat /= np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-6)
    return flat
