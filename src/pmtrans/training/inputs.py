"""What a run is made of: both domains as read, then model, method and task; mistakes are said before the first step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import timm.data
import torch

from pmtrans.backbones.create import create_backbone
from pmtrans.config import Config
from pmtrans.data.cache import ImageCache
from pmtrans.data.domain import LabelledDomain
from pmtrans.data.holdout import sample_domain, split_holdout
from pmtrans.data.read import Target, read_source, read_target
from pmtrans.data.readable import fast_check, keep_readable
from pmtrans.data.transforms import preprocessing_for
from pmtrans.errors import ConfigError, DataError, one_line
from pmtrans.inference.model_folder import TrainedModel
from pmtrans.methods import METHODS, Method, Sizes
from pmtrans.model import Model
from pmtrans.training.progress import Reporter
from pmtrans.training.task import Task


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


def build(config: Config, data: Data, reporter: Reporter) -> tuple[Method, Task, TrainedModel]:
    """Model, method and task; the same seed gives the same first weights to every method."""
    torch.manual_seed(config.seed)
    size = config.data.image_size
    backbone = create_backbone(config.backbone.name, config.backbone.weights, size, config.backbone.options)
    switches = {key: value for key, value in config.method.items() if key != "name"}
    entry = METHODS[config.method["name"]]
    options = entry.options.model_validate(switches)
    model = Model(backbone, len(data.source.classes), switches.get("head", "linear"))
    sizes = Sizes(len(data.source.classes), len(data.source), len(data.target.domain))
    method = entry.create(model, options, sizes)
    timm_config = timm.data.resolve_data_config({}, model=backbone.trunk)
    preprocessing = preprocessing_for(timm_config, size, config.data.crop_ratio)
    batch_size = min(config.train.batch_size, len(data.source), len(data.target.domain))
    if batch_size < config.train.batch_size:
        reporter.warn(f"batch size {config.train.batch_size} is more than a domain has: {batch_size} is used")
    sample = sample_domain(data.source, 512, config.seed)
    task = Task(data.source, data.holdout, sample, data.target.domain, preprocessing, batch_size, data.cache)
    return method, task, TrainedModel(model, data.source.classes, preprocessing, config.backbone)
