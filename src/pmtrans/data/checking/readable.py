"""The fast check that every training run does: which files cannot be decoded.

It runs before the first step, so that the data order stays fixed. Every file is decoded, as only that finds truncated
ones, but JPEGs at an eighth of their size; there are no hashes, no statistics and no domain gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pmtrans.data.domain import Domain, LabelledDomain, subset
from pmtrans.data.image import UnreadableImage, load_image
from pmtrans.data.parallel import map_files
from pmtrans.data.reading.classes import abbreviate
from pmtrans.data.reading.read import Target
from pmtrans.errors import DataError, one_line

SMALL_CLASS = 10


@dataclass(frozen=True)
class UnreadableFile:
    """A file that cannot be decoded, and why."""

    path: str
    reason: str


def fast_check(
    source: LabelledDomain, target: Target, workers: int | None = None
) -> tuple[list[UnreadableFile], tuple[str, ...]]:
    """(unreadable files of both domains, source first; warnings)."""
    paths = dict.fromkeys((*source.paths, *target.domain.paths))  # a path may be in both
    found = map_files(_unreadable, list(paths), "checking images", workers)
    bad = [file for file in found if file is not None]
    return bad, (*target.warnings, *small_class_warnings(source, bad))


def keep_readable(domain: Domain, bad: Iterable[UnreadableFile]) -> Domain:
    """The domain without its unreadable images, in the same order."""
    dropped = {file.path for file in bad}
    paths = tuple(path for path in domain.paths if path not in dropped)
    if not paths:
        raise DataError(f"{one_line(domain.origin)}: none of its {len(domain)} images can be read")
    return Domain(domain.origin, paths)


def keep_readable_labelled(domain: LabelledDomain, bad: Iterable[UnreadableFile]) -> LabelledDomain:
    """The same of a labelled domain; its classes are unchanged, and none of several sources may be lost."""
    dropped = {file.path for file in bad}
    readable = [place for place, path in enumerate(domain.paths) if path not in dropped]
    kept = subset(domain, readable)
    keep_readable(domain.images, bad)  # refuses a domain of which nothing is left
    for number, name in enumerate(domain.sources):
        if number not in kept.origins:
            images = domain.origins.count(number)
            raise DataError(f"{one_line(name)}: none of its {images} images can be read")
    return kept


def small_class_warnings(source: LabelledDomain, bad: Iterable[UnreadableFile]) -> tuple[str, ...]:
    """A warning if source classes have few or no readable images."""
    dropped = {file.path for file in bad}
    labelled = zip(source.paths, source.labels, strict=True)
    counts = Counter(label for path, label in labelled if path not in dropped)
    sizes = {name: counts[label] for label, name in enumerate(source.classes)}
    small = [f"{name} ({count})" for name, count in sizes.items() if count < SMALL_CLASS]
    if not small:
        return ()
    return (f"source has fewer than {SMALL_CLASS} images of {len(small)} classes: {abbreviate(small)}",)


def _unreadable(path: str) -> UnreadableFile | None:
    try:
        load_image(path, at_least=1)
    except UnreadableImage as error:
        return UnreadableFile(path, error.reason)
    return None
