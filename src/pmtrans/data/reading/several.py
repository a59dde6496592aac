"""A source that is made of several: their classes are matched by name, and each image keeps where it came from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pmtrans.config.sources import refuse_same_place, source_names
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.reading.classes import abbreviate, are_ids, describe_misspelt, match_classes, sort_classes
from pmtrans.data.reading.read import read_source
from pmtrans.errors import DataError, one_line


def read_sources(
    specs: Sequence[str | Path],
    *,
    root: str | Path | None = None,
    classes: str | Path | Sequence[str] | None = None,
    path_column: str | None = None,
    label_column: str | None = None,
) -> LabelledDomain:
    """One source as ``read_source`` reads it; several as one, whose classes are those of all of them.

    A source may lack classes that another has, but shares at least one with another.
    """
    refuse_same_place(specs)
    parts = [
        read_source(
            spec,
            root=root,
            classes=classes,
            path_column=path_column,
            label_column=label_column,
            least_classes=2 if len(specs) == 1 else 1,
        )
        for spec in specs
    ]
    if len(parts) == 1:
        return parts[0]
    names = source_names(specs)
    known = _common_names(parts, names) if classes is None else parts[0].classes
    if len(known) < 2:
        raise DataError(f"the sources have only one class, {one_line(known[0])!r}; at least two are needed")
    images = Domain(
        Path(" + ".join(place.name for place in map(Path, specs))), tuple(path for part in parts for path in part.paths)
    )
    labels = [_relabelled(part, known) for part in parts]
    _refuse_strangers(labels, names, known)
    return LabelledDomain(
        images,
        tuple(label for own in labels for label in own),
        known,
        tuple(number for number, part in enumerate(parts) for _ in part.paths),
        names,
        tuple(warning for part in parts for warning in part.warnings),
    )


def source_warnings(source: LabelledDomain) -> tuple[str, ...]:
    """What was left out; of several sources, which classes each lacks, and which names are perhaps one misspelt."""
    warnings = [*source.warnings]
    owners: dict[int, set[int]] = {label: set() for label in range(len(source.classes))}
    for label, origin in zip(source.labels, source.origins, strict=False):
        owners[label].add(origin)
    for number, name in enumerate(source.sources):
        missing = [source.classes[label] for label, having in owners.items() if having and number not in having]
        if missing:
            warnings.append(f"source {one_line(name)!r} has no images of {len(missing)} classes: {abbreviate(missing)}")
    for number, name in enumerate(source.sources):
        own = [source.classes[label] for label, having in owners.items() if having == {number}]
        others = [source.classes[label] for label, having in owners.items() if having - {number}]
        if misspelt := describe_misspelt(own, others):
            warnings.append(f"source {one_line(name)!r}: {misspelt}")
    return tuple(warnings)


def _common_names(parts: Sequence[LabelledDomain], names: Sequence[str]) -> tuple[str, ...]:
    """The classes of all, each in the spelling of the first source that has it."""
    with_ids = [name for part, name in zip(parts, names, strict=True) if are_ids(part.classes)]
    if 0 < len(with_ids) < len(parts):
        raise DataError(
            f"source {one_line(with_ids[0])!r} has class ids, another has names: "
            "give a classes file that maps ids to names (data.classes)"
        )
    known: list[str] = []
    for part in parts:
        known += match_classes(part.classes, known).unknown
    return tuple(sort_classes(known))


def _relabelled(part: LabelledDomain, known: Sequence[str]) -> list[int]:
    index = match_classes(part.classes, known).index
    return [index[part.classes[label]] for label in part.labels]


def _refuse_strangers(labels: Sequence[Sequence[int]], names: Sequence[str], known: Sequence[str]) -> None:
    """A source that shares no class with any other is probably of another task, or differently spelt."""
    present = [set(own) for own in labels]
    for number, own in enumerate(present):
        others = set().union(*(other for place, other in enumerate(present) if place != number))
        if not own & others:
            theirs = abbreviate(known[label] for label in sorted(others))
            raise DataError(
                f"source {one_line(names[number])!r} has no class in common with the other sources: "
                f"it has {abbreviate(known[label] for label in sorted(own))}, they have {theirs}"
            )
