"""Which files can be read, known before the first step, so that the order of data stays fixed.

``fast_check`` is what training runs by itself. It decodes every file, as only that finds a truncated one, but
JPEGs at an eighth of their size, and it measures nothing: no hashes, no statistics, no distance.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.image import UnreadableImage, load_image
from pmtrans.data.parallel import map_files
from pmtrans.data.reading.classes import some
from pmtrans.data.reading.read import Target
from pmtrans.errors import DataError, one_line

SMALL_CLASS = 10

AnyDomain = TypeVar("AnyDomain", bound=Domain)


@dataclass(frozen=True)
class Unreadable:
    """A file that cannot be used, and why."""

    path: str
    reason: str


def fast_check(
    source: LabelledDomain, target: Target, workers: int | None = None
) -> tuple[list[Unreadable], tuple[str, ...]]:
    """Every unreadable file of both domains, source first, and what else deserves a warning."""
    paths = dict.fromkeys((*source.paths, *target.domain.paths))  # a path may be in both
    found = map_files(_unreadable, list(paths), "checking images", workers)
    bad = [one for one in found if one is not None]
    return bad, (*target.warnings, *small_classes(source, bad))


def keep_readable(domain: AnyDomain, bad: Iterable[Unreadable]) -> AnyDomain:
    """The domain without its unreadable images; the order of the others, and the classes, stay."""
    dropped = {one.path for one in bad}
    kept = [position for position, path in enumerate(domain.paths) if path not in dropped]
    if not kept:
        raise DataError(f"{one_line(domain.origin)}: none of its {len(domain)} images can be read")
    paths = tuple(domain.paths[position] for position in kept)
    if isinstance(domain, LabelledDomain):
        labels = tuple(domain.labels[position] for position in kept)
        return dataclasses.replace(domain, paths=paths, labels=labels)
    return dataclasses.replace(domain, paths=paths)


def small_classes(source: LabelledDomain, bad: Iterable[Unreadable]) -> tuple[str, ...]:
    """A warning for source classes with few readable images, or with none."""
    dropped = {one.path for one in bad}
    labelled = zip(source.paths, source.labels, strict=True)
    counts = Counter(label for path, label in labelled if path not in dropped)
    sizes = {name: counts[label] for label, name in enumerate(source.classes)}
    small = [f"{name} ({count})" for name, count in sizes.items() if count < SMALL_CLASS]
    if not small:
        return ()
    return (f"source has fewer than {SMALL_CLASS} images of {len(small)} classes: {some(small)}",)


def _unreadable(path: str) -> Unreadable | None:
    try:
        load_image(path, at_least=1)
    except UnreadableImage as error:
        return Unreadable(path, error.reason)
    return None
