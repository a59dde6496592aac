"""Both domains of a run: read, checked, the source split; what a user can get wrong is said before the first step."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pmtrans.config import Config
from pmtrans.data.cache import ImageCache
from pmtrans.data.checking.readable import fast_check, keep_readable
from pmtrans.data.domain import LabelledDomain, split_holdout
from pmtrans.data.reading.read import Target, read_source, read_target
from pmtrans.errors import ConfigError, DataError, one_line
from pmtrans.progress import Reporter


@dataclass(frozen=True)
class Data:
    """Both domains as read, the source split; target labels stay in ``target.labelled``, for the oracle only."""

    source: LabelledDomain
    holdout: LabelledDomain
    target: Target
    cache: ImageCache | None = None


def read_data(config: Config, reporter: Reporter, decode: bool = True) -> Data:
    """Both domains; everything that a user can get wrong with data is said before the first step.

    ``decode=False`` believes that every file can be read, as when a run that was trained on them is looked at.
    """
    settings = config.data
    if settings.source is None or settings.target is None:
        raise ConfigError("Give both domains: --source DIR and --target DIR (or data.source and data.target).")
    columns = {"path_column": settings.path_column, "label_column": settings.label_column, "classes": settings.classes}
    source = read_source(settings.source, root=settings.source_root or settings.root, **columns)
    target = read_target(settings.target, source.classes, root=settings.target_root or settings.root, **columns)
    if decode:
        source, target = _readable(source, target, settings.on_bad_image, reporter)
    if len(target.domain) < 2:
        raise DataError(f"{one_line(settings.target)}: {len(target.domain)} image is too few to adapt to.")
    training, holdout = split_holdout(source, settings.holdout, config.seed)
    return Data(training, holdout, target)


def _readable(
    source: LabelledDomain, target: Target, on_bad_image: str, reporter: Reporter
) -> tuple[LabelledDomain, Target]:
    """Decided before the first step, so that the order of data stays fixed."""
    bad, warnings = fast_check(source, target)
    for warning in warnings:
        reporter.warn(warning)
    if not bad:
        return source, target
    shown = "; ".join(f"{one_line(one.path)}: {one.reason}" for one in bad[:3])
    if on_bad_image == "error":
        raise DataError(
            f"{len(bad)} images cannot be read ({shown}{'; ...' if len(bad) > 3 else ''}). "
            "Mend or remove them, or train without them: data.on_bad_image=skip."
        )
    reporter.warn(f"{len(bad)} unreadable images are left out: {shown}{'; ...' if len(bad) > 3 else ''}")
    labelled = keep_readable(target.labelled, bad) if target.labelled else None
    return keep_readable(source, bad), replace(target, domain=keep_readable(target.domain, bad), labelled=labelled)
