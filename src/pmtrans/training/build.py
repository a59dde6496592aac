"""What a stage is made of: model, method, and the task that they are trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import timm.data
import torch
from torch import Tensor

from pmtrans.backbones.create import create_backbone
from pmtrans.backbones.frozen import freeze_blocks
from pmtrans.backbones.lora import add_adapters
from pmtrans.config import Config
from pmtrans.data.cache import ImageCache
from pmtrans.data.domain import Domain, LabelledDomain, sample_domain, with_target_labels
from pmtrans.data.domains import Data
from pmtrans.data.sampling import count_steps
from pmtrans.data.transforms import Preprocessing, preprocessing_for
from pmtrans.ema import EMATeacher
from pmtrans.methods import METHODS, Method, Sizes
from pmtrans.methods.method import NO_CLASS
from pmtrans.methods.parts.target_classes import TargetClasses
from pmtrans.model import Model
from pmtrans.progress import Reporter
from pmtrans.run.model_folder import TrainedModel
from pmtrans.training.players import fix_betas

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Task:
    """The domains, how their images are prepared, and how many pairs make a batch. The target has no labels here.

    ``source`` is what is trained on with labels: the training part of the source and, after it, target images whose
    labels the user gave (``target_labels``).
    """

    source: LabelledDomain
    holdout: LabelledDomain
    source_sample: LabelledDomain  # a few training images, for validators that compare with them
    target: Domain
    preprocessing: Preprocessing
    batch_size: int
    cache: ImageCache | None = None
    target_labels: LabelledDomain | None = None
    without_labels: LabelledDomain | None = None  # the source alone, where there are target labels
    unknown: Domain | None = None  # images of an open target that the user says belong to no known class

    def steps(self, config: Config) -> tuple[int, int]:
        """(all steps, steps of an epoch); a few labels do not make an epoch longer."""
        return count_steps(config.train, len(self.own_source), len(self.target), self.batch_size)

    @property
    def own_source(self) -> LabelledDomain:
        """The training part of the source alone."""
        return self.source if self.without_labels is None else self.without_labels

    def pinned(self) -> tuple[list[int], list[int]]:
        """Places in the target whose labels the user gave, and these labels."""
        if self.target_labels is None:
            return [], []
        known = dict(zip(self.target_labels.paths, self.target_labels.labels, strict=True))
        known |= dict.fromkeys(self.unknown.paths if self.unknown is not None else (), NO_CLASS)
        places = [place for place, path in enumerate(self.target.paths) if path in known]
        return places, [known[self.target.paths[place]] for place in places]


def build_model(config: Config, data: Data, start: Weights | None = None) -> TrainedModel:
    """The backbone with its weights and a random head, or all weights of ``start``; a seed gives one first head."""
    torch.manual_seed(config.seed)
    size = config.data.image_size
    given, shape = config.backbone, (config.backbone.bottleneck, config.backbone.distillation_token)
    backbone = create_backbone(given.name, given.weights, size, given.options, *shape)
    model = Model(backbone, len(data.source.classes), config.method.get("head", "linear"))
    if start is not None:
        model.load_state_dict(start)
    if (shipped := data.given) is not None:  # a shipped model takes the input that it was trained with
        origin = config.backbone.model_copy(update={"weights": shipped.weights})
        return TrainedModel(model, data.source.classes, shipped.preprocessing, origin, shipped.temperature)
    timm_config = timm.data.resolve_data_config({}, model=backbone.trunk)
    preprocessing = preprocessing_for(timm_config, size, config.data.crop_ratio)
    return TrainedModel(model, data.source.classes, preprocessing, config.backbone)


def build_untrained(config: Config, data: Data, image_size: int) -> tuple[Model, Preprocessing]:
    """The model before any training, with the backbone's own features: a bottleneck would be a random projection."""
    plain = config.backbone.model_copy(update={"bottleneck": 0})
    sized = config.data.model_copy(update={"image_size": image_size})
    untrained = build_model(config.model_copy(update={"backbone": plain, "data": sized}), data)
    return untrained.model, untrained.preprocessing


def second_view_size(config: Config, model: Model) -> int:
    """How large the second view of a method is: as the weights know images, where that is asked for and larger."""
    asked = config.method.get("second_view_size") == "pretrained"
    return native_size(config, model) if asked else config.data.image_size


def ground_size(config: Config, model: Model) -> int | None:
    """How large images are on the second ground of selection; None: there is none."""
    size = native_size(config, model)
    return size if config.selection.second_ground and size > config.data.image_size else None


def native_size(config: Config, model: Model) -> int:
    """The image size of the pretrained weights, where it is larger than that of the run."""
    size = config.data.image_size
    if config.backbone.weights == "none":
        return size
    native: int = timm.data.resolve_data_config({}, model=model.backbone.trunk)["input_size"][-1]
    return max(native, size)


def build_task(config: Config, data: Data, preprocessing: Preprocessing, reporter: Reporter) -> Task:
    """A batch is no larger than the smaller domain."""
    batch_size = min(config.train.batch_size, len(data.source), len(data.target.domain))
    if batch_size < config.train.batch_size:
        reporter.warn(f"batch size {config.train.batch_size} is more than a domain has: {batch_size} is used")
    sample = sample_domain(data.source, 512, config.seed)
    labels = None if data.target_labels is None else data.target_labels.trained
    source = data.source if labels is None else with_target_labels(data.source, labels)
    plain = None if labels is None else data.source
    unknown = None if data.target_labels is None else data.target_labels.unknown
    return Task(
        source, data.holdout, sample, data.target.domain, preprocessing, batch_size, data.cache, labels, plain, unknown
    )


def build(
    config: Config, data: Data, reporter: Reporter, start: Weights | None = None
) -> tuple[Method, Task, TrainedModel]:
    """Model, method and task. The model has its first weights before the method makes copies of it."""
    trained = build_model(config, data, start)
    entry = METHODS[config.method["name"]]
    options = entry.options.model_validate({key: value for key, value in config.method.items() if key != "name"})
    task = build_task(config, data, trained.preprocessing, reporter)
    _, steps_per_epoch = task.steps(config)
    micro_batches = config.train.accumulate if config.train.accumulation == "cached" else 1
    batch = task.batch_size * micro_batches
    sizes = Sizes(len(data.source.classes), len(task.source), len(data.target.domain), steps_per_epoch, batch)
    freeze_blocks(trained.model.backbone, config.train.freeze_blocks)
    add_adapters(trained.model.backbone, config.train.lora, config.train.freeze_blocks)
    method = entry.create(trained.model, options, sizes)
    method.target_classes = _target_classes(config, method, sizes, reporter)
    method.pin(*task.pinned(), sizes.target_images)
    method.average = EMATeacher(trained.model, config.train.ema) if config.train.ema else None
    fix_betas(method, config.train.freeze_blocks, reporter)
    return method, task, trained


def _target_classes(config: Config, method: Method, sizes: Sizes, reporter: Reporter) -> TargetClasses | None:
    """None where both domains have the same classes, or the method does not look at the target."""
    kind = config.data.target_classes
    if kind == "same" or not method.uses_target:
        return None
    if kind == "partial" and not method.weighs_source:
        reporter.warn(
            f"method {config.method['name']} does not weigh source classes: data.target_classes=partial changes "
            "nothing in its training"
        )
    if kind == "open" and not method.leaves_out_unknown:
        reporter.warn(
            f"method {config.method['name']} trains on target images of no source class as on the others: only the "
            "answers know them"
        )
    return TargetClasses(kind, sizes.classes, sizes.target_images)
