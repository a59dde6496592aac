"""What a run is made of: both domains as read, then model, method and task; mistakes are said before the first step.

What a training is about: the domains, how their images are prepared, how many pairs make a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import timm.data
import torch

from pmtrans.backbones.create import create_backbone
from pmtrans.backbones.frozen import freeze_blocks
from pmtrans.config import Config
from pmtrans.data.cache import ImageCache
from pmtrans.data.domain import Domain, LabelledDomain, sample_domain
from pmtrans.data.domains import Data
from pmtrans.data.sampling import count_steps
from pmtrans.data.transforms import Preprocessing, preprocessing_for
from pmtrans.methods import METHODS, Method, Sizes
from pmtrans.methods.parts.ema import EMATeacher
from pmtrans.model import Model
from pmtrans.progress import Reporter
from pmtrans.run.model_folder import TrainedModel
from pmtrans.training.players import fix_betas


def build(config: Config, data: Data, reporter: Reporter) -> tuple[Method, Task, TrainedModel]:
    """Model, method and task; the same seed gives the same first weights to every method."""
    torch.manual_seed(config.seed)
    size = config.data.image_size
    backbone = create_backbone(config.backbone.name, config.backbone.weights, size, config.backbone.options)
    switches = {key: value for key, value in config.method.items() if key != "name"}
    entry = METHODS[config.method["name"]]
    options = entry.options.model_validate(switches)
    model = Model(backbone, len(data.source.classes), switches.get("head", "linear"))
    freeze_blocks(backbone, config.train.freeze_blocks)
    sizes = Sizes(len(data.source.classes), len(data.source), len(data.target.domain))
    method = entry.create(model, options, sizes)
    method.average = EMATeacher(model, config.train.ema) if config.train.ema else None
    fix_betas(method, config.train.freeze_blocks, reporter)
    timm_config = timm.data.resolve_data_config({}, model=backbone.trunk)
    preprocessing = preprocessing_for(timm_config, size, config.data.crop_ratio)
    batch_size = min(config.train.batch_size, len(data.source), len(data.target.domain))
    if batch_size < config.train.batch_size:
        reporter.warn(f"batch size {config.train.batch_size} is more than a domain has: {batch_size} is used")
    sample = sample_domain(data.source, 512, config.seed)
    task = Task(data.source, data.holdout, sample, data.target.domain, preprocessing, batch_size, data.cache)
    return method, task, TrainedModel(model, data.source.classes, preprocessing, config.backbone)


@dataclass(frozen=True)
class Task:
    """What is trained on. The target has no labels here."""

    source: LabelledDomain
    holdout: LabelledDomain
    source_sample: LabelledDomain  # a few training images, for validators that compare with them
    target: Domain
    preprocessing: Preprocessing
    batch_size: int
    cache: ImageCache | None = None

    def steps(self, config: Config) -> tuple[int, int]:
        """(all steps, steps of an epoch)."""
        return count_steps(config.train, len(self.source), len(self.target), self.batch_size)
