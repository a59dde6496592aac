"""The fast check that every training run does: which files cannot be decoded, and what source images look like.

It runs before the first step, so that the data order stays fixed. Every file is decoded, as only that finds truncated
ones, but JPEGs at a fraction of their size; there are no statistics and no domain gap.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from pmtrans.data.checking.facts import SMALL_SIDE
from pmtrans.data.checking.look_alikes import MOST, Look, look_of
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


@dataclass(frozen=True)
class Checked:
    """Unreadable files of both domains, source first; warnings; and looks of source images, by path."""

    bad: list[UnreadableFile]
    warnings: tuple[str, ...]
    looks: dict[str, Look]


def fast_check(source: LabelledDomain, target: Target, workers: int | None = None) -> Checked:
    """Decode every file of both domains."""
    compared = set(source.paths) if len(source) <= MOST else set()
    looks: dict[str, Look] = {}

    def check(path: str) -> UnreadableFile | None:
        try:
            image = load_image(path, at_least=SMALL_SIDE if path in compared else 1)
        except UnreadableImage as error:
            return UnreadableFile(path, error.reason)
        if path in compared and (look := look_of(image)) is not None:
            looks[path] = look
        return None

    paths = dict.fromkeys((*source.paths, *target.domain.paths))  # a path may be in both
    bad = [file for file in map_files(check, list(paths), "checking images", workers) if file is not None]
    return Checked(bad, (*target.warnings, *small_class_warnings(source, bad)), looks)


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
