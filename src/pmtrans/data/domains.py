"""The data of a run: both domains read and checked, the source split into training and held-out part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pmtrans.config import Config
from pmtrans.data.cache import ImageCache
from pmtrans.data.checking.look_alikes import Look, look_alikes
from pmtrans.data.checking.readable import fast_check, keep_readable, keep_readable_labelled
from pmtrans.data.domain import LabelledDomain, holdout_places, split_at
from pmtrans.data.given import GivenModel, read_given_labels
from pmtrans.data.reading.read import Target, read_target
from pmtrans.data.reading.several import read_sources, source_warnings
from pmtrans.data.reading.target_labels import TargetLabels, read_target_labels
from pmtrans.errors import ConfigError, DataError, one_line
from pmtrans.progress import Reporter


@dataclass(frozen=True)
class Data:
    """Both domains, the source split; labels found in the target are in ``target.labelled`` only, for the oracle.

    ``target_labels``: what the user gave for training, with ``--target-labels``, and for nothing else is it read.
    """

    source: LabelledDomain
    holdout: LabelledDomain
    target: Target
    cache: ImageCache | None = None
    target_labels: TargetLabels | None = None
    given: GivenModel | None = None  # where a shipped model is moved: what it keeps
    held_places: tuple[int, ...] = ()  # of the held-out images in the whole source

    @property
    def labels_given(self) -> tuple[LabelledDomain, ...]:
        """Target labels that train, those kept for measuring, and, with the label -1, images of no known class.

        Empty without ``--target-labels``.
        """
        if self.target_labels is None:
            return ()
        trained, kept, unknown = self.target_labels.trained, self.target_labels.kept, self.target_labels.unknown
        return trained, kept, *([LabelledDomain(unknown, (-1,) * len(unknown), kept.classes)] if len(unknown) else [])


def read_data(
    config: Config, reporter: Reporter, decode: bool = True, held_places: Sequence[int] | None = None
) -> Data:
    """Read and check both domains, so that every problem with the data is reported before the first step.

    ``decode=False`` skips the check of unreadable files, which training has done already. ``held_places``: the hold-out
    of a run as it was drawn; to draw it again, every source image would have to be looked at.
    """
    settings = config.data
    if settings.given is not None:
        given = read_given_labels(Path(settings.given))
        target = read_unlabelled(config, given.classes, reporter, decode)
        return Data(*given.as_source(target.domain), target)
    if settings.source is None or settings.target is None:
        raise ConfigError("Give both domains: --source DIR and --target DIR (or data.source and data.target).")
    columns = {"path_column": settings.path_column, "label_column": settings.label_column, "classes": settings.classes}
    source = read_sources(settings.sources, root=settings.source_root or settings.root, **columns)
    for warning in source_warnings(source):
        reporter.warn(warning)
    root = settings.target_root or settings.root
    target = read_target(settings.target, source.classes, root=root, trained_on=True, **columns)
    labels = None
    if settings.target_labels is not None:
        labels = read_target_labels(
            settings.target_labels, target.domain, source.classes, kept_share=settings.target_labels_kept,
            seed=config.seed, root=root, is_open=settings.target_classes == "open", **columns,
        )  # fmt: skip
    alike: list[list[int]] = []
    if decode:
        source, target, looks = _handle_unreadable(source, target, settings.on_bad_image, reporter)
        alike = look_alikes(source.paths, looks)
        labels = None if labels is None else labels.within(target.domain)
    if len(target.domain) < 2:
        raise DataError(f"{one_line(settings.target)}: {len(target.domain)} image, but adaptation needs at least 2.")
    if held_places is None:
        held_places = holdout_places(source, settings.holdout, config.seed, alike)
    elif any(not 0 <= place < len(source) for place in held_places):
        raise DataError(f"The source has {len(source)} images, fewer than when the run held some of them out.")
    training, holdout = split_at(source, held_places)
    return Data(training, holdout, target, target_labels=labels, held_places=tuple(held_places))


def read_unlabelled(config: Config, classes: Sequence[str], reporter: Reporter, decode: bool = True) -> Target:
    """The target alone, for a model that knows ``classes``: read and checked as beside a source."""
    settings = config.data
    if settings.target is None:
        raise ConfigError("Give the new place: --target DIR (or data.target).")
    columns = {"path_column": settings.path_column, "label_column": settings.label_column, "classes": settings.classes}
    root = settings.target_root or settings.root
    target = read_target(settings.target, classes, root=root, trained_on=True, **columns)
    if decode:
        images = LabelledDomain(target.domain, (0,) * len(target.domain), ())  # no class of which there are too few
        target = _handle_unreadable(images, target, settings.on_bad_image, reporter)[1]
    if len(target.domain) < 2:
        raise DataError(f"{one_line(settings.target)}: {len(target.domain)} image, but adaptation needs at least 2.")
    return target


def _handle_unreadable(
    source: LabelledDomain, target: Target, on_bad_image: str, reporter: Reporter
) -> tuple[LabelledDomain, Target, dict[str, Look]]:
    """Refuse or leave out unreadable images before the first step, so that the data order stays fixed."""
    checked = fast_check(source, target)
    bad = checked.bad
    for warning in checked.warnings:
        reporter.warn(warning)
    if not bad:
        return source, target, checked.looks
    examples = "; ".join(f"{one_line(file.path)}: {file.reason}" for file in bad[:3])
    if len(bad) > 3:
        examples += "; ..."
    if on_bad_image == "error":
        raise DataError(
            f"{len(bad)} images cannot be read ({examples}). "
            "Fix or remove them, or train without them: data.on_bad_image=skip."
        )
    reporter.warn(f"{len(bad)} unreadable images are left out: {examples}")
    labelled = keep_readable_labelled(target.labelled, bad) if target.labelled else None
    kept = replace(target, domain=keep_readable(target.domain, bad), labelled=labelled)
    return keep_readable_labelled(source, bad), kept, checked.looks
