"""The full check of two domains before anything is trained on them. It reads, and writes nothing.

What a check found, and the JSON object that scripts read it from.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pmtrans.data.checking.duplicates import Twins, find_twins
from pmtrans.data.checking.facts import THUMBNAIL, Facts, Statistics, image_facts, odd_shapes, summarise
from pmtrans.data.checking.gap import LEAST, MOST, missing_classes, proxy_a_distance
from pmtrans.data.checking.readable import Unreadable, small_classes
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.image import UnreadableImage
from pmtrans.data.parallel import map_files
from pmtrans.data.reading.classes import some
from pmtrans.data.reading.read import Target
from pmtrans.errors import one_line

Features = Callable[[list[str]], NDArray[np.floating]]
THUMBNAIL_FEATURES = "colour thumbnails of 8x8 pixels"


def check_domains(
    source: LabelledDomain,
    target: Target,
    *,
    features: Features | None = None,
    features_name: str = "given features",
    workers: int | None = None,
    seed: int = 0,
) -> Report:
    """Decode every file in full and report what is wrong, doubtful or worth knowing.

    ``features`` turns paths into one row each, for the gap between the domains (a backbone's features);
    without it, colour thumbnails are compared. It is called on at most ``MOST`` images of each domain.
    """
    start = time.perf_counter()
    seen_source = _examine(source, "source", workers)
    seen_target = _examine(target.domain, "target", workers)
    equal, twins = find_twins(seen_source.paths, seen_source.facts, seen_target.paths, seen_target.facts)
    gap, missing = None, tuple[str, ...]()
    if min(len(seen_source.paths), len(seen_target.paths)) >= LEAST:
        source_rows = _describe(seen_source, features, (seed, 0))
        target_rows = _describe(seen_target, features, (seed, 1))
        gap = proxy_a_distance(source_rows.features, target_rows.features, seed)
        if features is not None and target.labelled is None:  # thumbnails know nothing of classes
            missing = _missing(source, source_rows, target_rows)
    source_classes = _counts(source)
    target_classes = (_counts(target.labelled) if target.labelled else {}) | dict(target.unknown_classes)
    warnings = (
        *target.warnings,
        *missing,
        *small_classes(source, seen_source.bad),
        *odd_shapes("source", seen_source.paths, seen_source.facts),
        *odd_shapes("target", seen_target.paths, seen_target.facts),
        *_leaks(equal, twins, set(seen_target.paths)),
        *_two_labels(equal, source),
    )
    return Report(
        source=_domain_report(source, source_classes, seen_source),
        target=_domain_report(target.domain, target_classes, seen_target),
        duplicates=twins,
        equal=equal,
        domain_gap=gap,
        domain_gap_features=THUMBNAIL_FEATURES if features is None else features_name,
        warnings=warnings,
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True)
class _Examined:
    paths: list[str]  # of the readable images, and their facts
    facts: list[Facts]
    bad: tuple[Unreadable, ...]


@dataclass(frozen=True)
class _Described:
    paths: list[str]
    features: NDArray[np.floating]


def _examine(domain: Domain, title: str, workers: int | None) -> _Examined:
    paths = list(dict.fromkeys(domain.paths))  # a list may name an image several times
    found = dict(zip(paths, map_files(_facts, paths, f"checking {title}", workers), strict=True))
    readable = {path: facts for path, facts in found.items() if isinstance(facts, Facts)}
    bad = tuple(facts for facts in found.values() if isinstance(facts, Unreadable))
    return _Examined(list(readable), list(readable.values()), bad)


def _facts(path: str) -> Facts | Unreadable:
    try:
        return image_facts(path)
    except UnreadableImage as error:
        return Unreadable(path, error.reason)


def _domain_report(domain: Domain, classes: dict[str, int], seen: _Examined) -> DomainReport:
    return DomainReport(str(domain.origin), len(domain), classes, seen.bad, summarise(seen.facts))


def _counts(domain: LabelledDomain) -> dict[str, int]:
    counts = Counter(domain.labels)
    return {name: counts[label] for label, name in enumerate(domain.classes)}


def _describe(seen: _Examined, features: Features | None, seed: tuple[int, int]) -> _Described:
    drawn = np.random.default_rng(seed).permutation(len(seen.paths))[:MOST]
    paths = [seen.paths[i] for i in drawn]
    if features is None:
        return _Described(paths, _thumbnails([seen.facts[i] for i in drawn]))
    return _Described(paths, features(paths))


def _missing(source: LabelledDomain, source_rows: _Described, target_rows: _Described) -> tuple[str, ...]:
    label = dict(zip(source.paths, source.labels, strict=True))
    labels = np.array([label[path] for path in source_rows.paths])
    found = missing_classes(source_rows.features, labels, target_rows.features)
    if not found:
        return ()
    names = some(source.classes[number] for number in found)
    return (f"target seems to have no image of {len(found)} source classes, by its features: {names}",)


def _thumbnails(facts: Sequence[Facts]) -> NDArray[np.floating]:
    half = THUMBNAIL // 2
    thumbnails = np.stack([fact.thumbnail for fact in facts]).astype(np.float64)
    rows: NDArray[np.float64] = thumbnails.reshape(-1, half, 2, half, 2, 3).mean(axis=(2, 4))
    return rows.reshape(len(facts), -1)


def _leaks(equal: Twins, twins: Twins, target_paths: set[str]) -> tuple[str, ...]:
    warnings = []
    copies = {path for group in equal.across for path in group if path in target_paths}
    if copies:
        one, *_, other = equal.across[0]
        warnings.append(
            f"leak: {len(copies)} target images are in the source too, such as {one_line(other)} "
            f"and {one_line(one)}: accuracy on them says nothing about adaptation"
        )
    near = {path for group in twins.across for path in group if path in target_paths} - copies
    if near:
        one, *_, other = next(group for group in twins.across if not near.isdisjoint(group))
        warnings.append(
            f"{len(near)} target images look nearly like source images (the same scene or object?), "
            f"such as {one_line(other)} and {one_line(one)}"
        )
    return tuple(warnings)


def _two_labels(equal: Twins, source: LabelledDomain) -> tuple[str, ...]:
    label = dict(zip(source.paths, source.labels, strict=True))
    mixed = [group for group in equal.within_source if len({label[path] for path in group}) > 1]
    if not mixed:
        return ()
    names = " and ".join(sorted({source.classes[label[path]] for path in mixed[0]}))
    example = f"{one_line(mixed[0][0])} ({one_line(names)})"
    return (f"source: {len(mixed)} pictures carry more than one label, such as {example}",)


@dataclass(frozen=True)
class DomainReport:
    """One domain: ``images`` counts all files, ``classes`` those of each class (empty without labels)."""

    origin: str
    images: int
    classes: dict[str, int]
    unreadable: tuple[Unreadable, ...]
    statistics: Statistics | None


@dataclass(frozen=True)
class Report:
    """A full check. ``equal`` are duplicates to the pixel, ``duplicates`` those and the near ones."""

    source: DomainReport
    target: DomainReport
    duplicates: Twins
    equal: Twins
    domain_gap: float | None
    domain_gap_features: str
    warnings: tuple[str, ...]
    seconds: float

    @property
    def is_readable(self) -> bool:
        """Whether every file of both domains can be used."""
        return not self.source.unreadable and not self.target.unreadable

    def as_json(self) -> dict[str, Any]:
        """The object of the contract: ``source``, ``target``, ``duplicates``, ``domain_gap``, ``warnings``,
        and beside them what it does not ask for."""
        images = self.source.images + self.target.images
        return {
            "source": dataclasses.asdict(self.source),
            "target": dataclasses.asdict(self.target),
            "duplicates": dataclasses.asdict(self.duplicates) | {"equal": dataclasses.asdict(self.equal)},
            "domain_gap": self.domain_gap,
            "domain_gap_features": self.domain_gap_features,
            "warnings": list(self.warnings),
            "seconds": round(self.seconds, 3),
            "images_per_second": round(images / self.seconds, 1) if self.seconds else None,
        }
