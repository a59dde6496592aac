"""The full check of two domains before training, and its report. Read-only."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pmtrans.data.checking.duplicates import Duplicates, Groups, find_duplicates
from pmtrans.data.checking.facts import THUMBNAIL, Facts, Statistics, image_facts, shape_warnings, summarise
from pmtrans.data.checking.gap import MAX_IMAGES, MIN_IMAGES, missing_classes, proxy_a_distance, unfit_share
from pmtrans.data.checking.readable import UnreadableFile, small_class_warnings
from pmtrans.data.domain import Domain, LabelledDomain, subset
from pmtrans.data.image import UnreadableImage
from pmtrans.data.parallel import FileMap, map_files
from pmtrans.data.reading.classes import abbreviate
from pmtrans.data.reading.read import Target
from pmtrans.data.reading.several import source_warnings
from pmtrans.errors import one_line

FeatureExtractor = Callable[[list[str]], NDArray[np.floating]]
UNFIT = 0.3  # of the target images, from which some seem to be of no source class
THUMBNAIL_FEATURES = "colour thumbnails of 8x8 pixels"


@dataclass(frozen=True)
class DomainReport:
    """One domain. ``images`` is the number of files, ``classes`` the number per class (empty without labels)."""

    origin: str
    images: int
    classes: dict[str, int]
    unreadable: tuple[UnreadableFile, ...]
    statistics: Statistics | None


@dataclass(frozen=True)
class SourceReport:
    """One of several sources: its classes, and its own distance from the target (None: too few images)."""

    name: str
    images: int
    classes: dict[str, int]
    domain_gap: float | None


@dataclass(frozen=True)
class Report:
    """Result of a full check. ``equal`` are pixel-identical images; ``duplicates`` include near-duplicates too.

    ``sources`` and ``between_sources``, the groups of duplicates with images of more than one source, are empty where
    there is a single source.
    """

    source: DomainReport
    target: DomainReport
    duplicates: Duplicates
    equal: Duplicates
    domain_gap: float | None
    domain_gap_features: str
    warnings: tuple[str, ...]
    seconds: float
    sources: tuple[SourceReport, ...] = ()
    between_sources: Groups = ()

    @property
    def all_readable(self) -> bool:
        """Whether every file of both domains can be decoded."""
        return not self.source.unreadable and not self.target.unreadable

    def as_json(self) -> dict[str, Any]:
        """The object that ``pmtrans check --json`` prints; scripts rely on its keys."""
        images = self.source.images + self.target.images
        several = {
            "sources": [dataclasses.asdict(source) for source in self.sources],
            "duplicates_between_sources": self.between_sources,
        }
        return {
            **(several if self.sources else {}),
            "source": dataclasses.asdict(self.source),
            "target": dataclasses.asdict(self.target),
            "duplicates": dataclasses.asdict(self.duplicates) | {"equal": dataclasses.asdict(self.equal)},
            "domain_gap": self.domain_gap,
            "domain_gap_features": self.domain_gap_features,
            "warnings": list(self.warnings),
            "seconds": round(self.seconds, 3),
            "images_per_second": round(images / self.seconds, 1) if self.seconds else None,
        }


def check_domains(
    source: LabelledDomain,
    target: Target,
    *,
    features: FeatureExtractor | None = None,
    features_name: str = "given features",
    workers: int | None = None,
    files: FileMap | None = None,
    seed: int = 0,
) -> Report:
    """Decode every file in full and report unreadable files, duplicates, leaks, statistics and the domain gap.

    ``features`` maps paths to one feature row each, such as a backbone's features, for the domain gap; without it,
    colour thumbnails are compared. It is called on at most ``MAX_IMAGES`` images of each domain. ``files`` is where
    images are decoded: by default in ``workers`` threads here.
    """
    start = time.perf_counter()
    files = files or functools.partial(map_files, workers=workers)
    examined_source = _examine(source.images, "source", files)
    examined_target = _examine(target.domain, "target", files)
    equal, duplicates = find_duplicates(
        examined_source.paths, examined_source.facts, examined_target.paths, examined_target.facts
    )
    gap, missing, target_sample = None, tuple[str, ...](), None
    if min(len(examined_source.paths), len(examined_target.paths)) >= MIN_IMAGES:
        source_sample = _sample_features(examined_source, features, (seed, 0))
        target_sample = _sample_features(examined_target, features, (seed, 1))
        gap = proxy_a_distance(source_sample.features, target_sample.features, seed)
        if features is not None and target.labelled is None:  # thumbnails do not separate classes
            missing = _other_class_warnings(source, source_sample, target_sample, seed)
    source_classes = _counts(source)
    target_classes = (_counts(target.labelled) if target.labelled else {}) | dict(target.unknown_classes)
    warnings = (
        *source_warnings(source),
        *target.warnings,
        *missing,
        *small_class_warnings(source, examined_source.unreadable),
        *shape_warnings("source", examined_source.paths, examined_source.facts),
        *shape_warnings("target", examined_target.paths, examined_target.facts),
        *_leak_warnings(equal, duplicates, set(examined_target.paths)),
        *_conflicting_label_warnings(equal, source),
        *_between_source_warnings(equal, source),
    )
    return Report(
        source=_domain_report(source.images, source_classes, examined_source),
        target=_domain_report(target.domain, target_classes, examined_target),
        duplicates=duplicates,
        equal=equal,
        domain_gap=gap,
        domain_gap_features=THUMBNAIL_FEATURES if features is None else features_name,
        warnings=warnings,
        seconds=time.perf_counter() - start,
        sources=_source_reports(source, examined_source, target_sample, features, seed),
        between_sources=_between_sources(duplicates, source),
    )


def _source_reports(
    source: LabelledDomain,
    examined: _Examined,
    target_sample: _FeatureSample | None,
    features: FeatureExtractor | None,
    seed: int,
) -> tuple[SourceReport, ...]:
    """Of several sources each with its own distance from the target, by the same features."""
    found = dict(zip(examined.paths, examined.facts, strict=True))
    reports = []
    for number, name in enumerate(source.sources):
        own = subset(source, (place for place, origin in enumerate(source.origins) if origin == number))
        paths = [path for path in dict.fromkeys(own.paths) if path in found]
        gap = None
        if target_sample is not None and len(paths) >= MIN_IMAGES:
            readable = _Examined(paths, [found[path] for path in paths], ())
            gap = proxy_a_distance(
                _sample_features(readable, features, (seed, 0)).features, target_sample.features, seed
            )
        reports.append(SourceReport(name, len(own), _counts(own), gap))
    return tuple(reports)


def _between_sources(duplicates: Duplicates, source: LabelledDomain) -> Groups:
    """The groups of duplicates that have images of more than one source."""
    origin = dict(zip(source.paths, source.origins, strict=False))
    return tuple(group for group in duplicates.within_source if len({origin.get(path) for path in group}) > 1)


def _between_source_warnings(equal: Duplicates, source: LabelledDomain) -> tuple[str, ...]:
    warnings = []
    listed = Counter(path for path, _ in set(zip(source.paths, source.origins, strict=False)))
    twice = [path for path, count in listed.items() if count > 1]
    if twice:
        warnings.append(f"{len(twice)} files are listed by more than one source, such as {one_line(twice[0])}")
    if groups := _between_sources(equal, source):
        one, *_, other = groups[0]
        warnings.append(
            f"{len(groups)} images are in more than one source, such as {one_line(one)} and {one_line(other)}: "
            "held-out accuracy on them says little"
        )
    return tuple(warnings)


@dataclass(frozen=True)
class _Examined:
    paths: list[str]  # of the readable images
    facts: list[Facts]  # of the same images
    unreadable: tuple[UnreadableFile, ...]


def _examine(domain: Domain, title: str, files: FileMap) -> _Examined:
    paths = list(dict.fromkeys(domain.paths))  # a list may name an image several times
    found = dict(zip(paths, files(facts_or_reason, paths, f"checking {title}"), strict=True))
    readable = {path: facts for path, facts in found.items() if isinstance(facts, Facts)}
    unreadable = tuple(UnreadableFile(path, reason) for path, reason in found.items() if isinstance(reason, str))
    return _Examined(list(readable), list(readable.values()), unreadable)


def facts_or_reason(path: str) -> Facts | str:
    """What an image measures, or why it cannot be decoded; another process may do it."""
    try:
        return image_facts(path)
    except UnreadableImage as error:
        return error.reason


def _domain_report(domain: Domain, classes: dict[str, int], examined: _Examined) -> DomainReport:
    return DomainReport(str(domain.origin), len(domain), classes, examined.unreadable, summarise(examined.facts))


def _counts(domain: LabelledDomain) -> dict[str, int]:
    counts = Counter(domain.labels)
    return {name: counts[label] for label, name in enumerate(domain.classes)}


@dataclass(frozen=True)
class _FeatureSample:
    paths: list[str]
    features: NDArray[np.floating]


def _sample_features(examined: _Examined, features: FeatureExtractor | None, seed: tuple[int, int]) -> _FeatureSample:
    drawn = np.random.default_rng(seed).permutation(len(examined.paths))[:MAX_IMAGES]
    paths = [examined.paths[i] for i in drawn]
    if features is None:
        return _FeatureSample(paths, _thumbnails([examined.facts[i] for i in drawn]))
    return _FeatureSample(paths, features(paths))


def _thumbnails(facts: Sequence[Facts]) -> NDArray[np.floating]:
    half = THUMBNAIL // 2
    thumbnails = np.stack([fact.thumbnail for fact in facts]).astype(np.float64)
    rows: NDArray[np.float64] = thumbnails.reshape(-1, half, 2, half, 2, 3).mean(axis=(2, 4))
    return rows.reshape(len(facts), -1)


def _other_class_warnings(
    source: LabelledDomain, source_sample: _FeatureSample, target_sample: _FeatureSample, seed: int
) -> tuple[str, ...]:
    """Signs that the target lacks source classes, or has images of none."""
    label = dict(zip(source.paths, source.labels, strict=True))
    labels = np.array([label[path] for path in source_sample.paths])
    found = missing_classes(source_sample.features, labels, target_sample.features)
    warnings = []
    if found:
        names = abbreviate(source.classes[number] for number in found)
        warnings.append(
            f"target seems to have no images of {len(found)} source classes, by its features: {names} "
            "(data.target_classes=partial trains without them)"
        )
    unfit = unfit_share(source_sample.features, labels, target_sample.features, seed)
    if unfit > UNFIT:
        warnings.append(
            f"{unfit:.0%} of the target images fit their class less than 5% of held-out source images do: some may be "
            "of no source class (data.target_classes=open)"
        )
    return tuple(warnings)


def _leak_warnings(equal: Duplicates, duplicates: Duplicates, target_paths: set[str]) -> tuple[str, ...]:
    warnings = []
    copies = {path for group in equal.across for path in group if path in target_paths}
    if copies:
        one, *_, other = equal.across[0]
        warnings.append(
            f"leak: {len(copies)} target images are in the source too, such as {one_line(other)} "
            f"and {one_line(one)}: accuracy on them does not measure adaptation"
        )
    near = {path for group in duplicates.across for path in group if path in target_paths} - copies
    if near:
        one, *_, other = next(group for group in duplicates.across if not near.isdisjoint(group))
        warnings.append(
            f"{len(near)} target images are near-duplicates of source images (the same scene or object?), "
            f"such as {one_line(other)} and {one_line(one)}"
        )
    return tuple(warnings)


def _conflicting_label_warnings(equal: Duplicates, source: LabelledDomain) -> tuple[str, ...]:
    label = dict(zip(source.paths, source.labels, strict=True))
    conflicts = [group for group in equal.within_source if len({label[path] for path in group}) > 1]
    if not conflicts:
        return ()
    names = " and ".join(sorted({source.classes[label[path]] for path in conflicts[0]}))
    example = f"{one_line(conflicts[0][0])} ({one_line(names)})"
    return (f"source: {len(conflicts)} images have more than one label, such as {example}",)
