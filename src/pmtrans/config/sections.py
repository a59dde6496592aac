"""All settings of a run: names, types, defaults and descriptions."""

from __future__ import annotations

from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from pmtrans.config.sources import one_or_several, source_places


class SettingsSection(BaseModel):
    """A group of settings: immutable, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataConfig(SettingsSection):
    """Where the images are, and how they are loaded and augmented."""

    source: str | tuple[str, ...] | None = Field(
        None, description="labelled images: class folders, a list file, a table or shards; or a list of several such"
    )
    target: str | None = Field(None, description="unlabelled images; labels found there are used by evaluation only")
    target_labels: str | None = Field(
        None, description="labels of some target images, which train: a table (path, label), a list or class folders"
    )
    target_labels_kept: float = Field(
        0.2, ge=0, lt=1, description="share of the target labels that is kept for measuring, of 20 labels or more"
    )
    target_labels_share: float = Field(
        0.5, gt=0, lt=1, description="share of the labelled images of a batch that are labelled target images"
    )
    root: str | None = Field(None, description="folder that the paths of list files and tables start from")
    source_root: str | None = Field(None, description="`root` of the source only")
    target_root: str | None = Field(None, description="`root` of the target only")
    path_column: str | None = Field(None, description="a table's column of image paths; null: found by its name")
    label_column: str | None = Field(None, description="a table's column of labels; null: found by its name")
    classes: str | None = Field(None, description="file with one class name a line, in the order of the ids")
    target_classes: Literal["same", "partial", "open"] = Field(
        "same",
        description="same: the source's classes; partial: only some of them; open: also images of no source class, "
        "whose answer is `unknown`",
    )
    given: str | None = Field(
        None, description="labels of a given model for the target, in place of a source: `pmtrans adapt` writes them"
    )
    image_size: int = Field(224, ge=8, le=4096, description="side of the model's input, in pixels")
    crop_ratio: float | None = Field(0.875, gt=0, le=1, description="crop / resized side; null: the backbone's own")
    augmentation: Literal["paper", "none", "resized_crop", "randaugment", "autoaugment", "augmix"] = Field(
        "paper", description="training transform; paper: resize, random crop, flip"
    )
    flip: bool = Field(True, description="mirror training images at random (off for digits, letters, signs)")
    random_erasing: float = Field(0.0, ge=0, le=1, description="probability of erasing a random box")
    balance: Literal["none", "classes"] = Field(
        "none",
        description="classes: every class as often as any other in source batches; not for methods that choose pairs",
    )
    workers: int | None = Field(
        None,
        ge=0,
        le=512,
        description="loader processes; null: by cores and device; results do not depend on it",
    )
    cache: str | None = Field(None, description="folder for a cache of resized images; results do not depend on it")
    on_bad_image: Literal["error", "skip"] = Field("error", description="unreadable files: stop with an error, or skip")
    holdout: float = Field(0.1, ge=0, lt=0.9, description="held-out share of the source, for model selection")

    @field_validator("source", mode="before")
    @classmethod
    def _one_or_several_sources(cls, value: Any) -> Any:
        if isinstance(value, list | tuple) and not value:
            raise ValueError("an empty list names no source")
        return one_or_several(value)

    @property
    def sources(self) -> tuple[str, ...]:
        """The places of ``source``, one or several."""
        return source_places(self.source)

    @property
    def places(self) -> tuple[str, ...]:
        """All places that images or their labels are read from."""
        others = (self.target, self.target_labels, self.root, self.source_root, self.target_root)
        return (*self.sources, *(str(place) for place in others if place is not None))


class BackboneConfig(SettingsSection):
    """The transformer and its pretrained weights."""

    name: str = Field("deit_small_patch16_224", description="a timm transformer with one patch embedding")
    weights: str = Field("timm", description="none, timm, hf-hub:ORG/NAME, or a safetensors / pth file")
    options: dict[str, Any] = Field(
        default_factory=dict, description="arguments of the timm model: drop_path_rate, ..."
    )
    bottleneck: int = Field(
        0,
        ge=0,
        le=16_384,
        description="width of a bottleneck (linear, batch normalisation, ReLU) before the classifier; 0: none",
    )
    distillation_token: bool = Field(
        True,
        description="of a distilled DeiT: features are the mean of class and distillation token, as in timm; false: "
        "the class token alone",
    )


class TrainConfig(SettingsSection):
    """Optimisation, evaluation and logging."""

    epochs: int = Field(20, ge=1, description="an epoch is one pass over the longer domain, or `epoch_steps`")
    epoch_steps: int | None = Field(None, ge=1, description="steps per epoch; null: one pass over the longer domain")
    max_steps: int | None = Field(None, ge=1, description="stop after this many steps")
    source_steps: int | None = Field(
        None, ge=1, description="steps of the source stage, and of method source_only; null: as many as the method has"
    )
    batch_size: int = Field(32, ge=1, le=1_000_000, description="pairs per step and micro-batch")
    accumulate: int = Field(1, ge=1, le=10_000, description="micro-batches per step")
    accumulation: Literal["plain", "cached"] = Field(
        "plain", description="plain: losses see one micro-batch; cached: the whole batch, for a second forward pass"
    )
    checkpoint_activations: bool = Field(False, description="recompute each block in backward: less memory, more time")
    compile: bool = Field(False, description="torch.compile the forward pass; needs a C++ compiler")
    learning_rate: float = Field(5e-5, gt=0, description="learning rate of the backbone")
    freeze_blocks: int = Field(
        0, ge=0, description="blocks that keep their pretrained weights, from the first on, with embedding and tokens"
    )
    lora: int = Field(
        0,
        ge=0,
        le=1024,
        description="rank of adapters that train in place of the backbone, at the rate of new layers; 0: no adapters",
    )
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="a block's learning rate / that of the block after it; 1: all learn at one rate"
    )
    head_ratio: float = Field(10.0, gt=0, description="learning rate of new layers / learning_rate")
    weight_decay: float = Field(
        0.05, ge=0, description="of AdamW; not of 1-D parameters, positions, tokens and the players' scalars"
    )
    schedule: Literal["cosine", "inverse", "constant"] = Field(
        "cosine", description="learning rate after warm-up; inverse: (1 + 0.001 i)^-0.75 at step i"
    )
    warmup_steps: int | None = Field(
        None, ge=0, description="steps of linear learning-rate warm-up; null: 5 % of the steps, none below 20 steps"
    )
    ema: float = Field(
        0.0, ge=0, lt=1, description="decay of an average of the weights that is judged and shipped; 0: no average"
    )
    clip: float = Field(5.0, ge=0, description="largest gradient norm of the descending players; 0: off")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="number format; auto: bf16 on CUDA GPUs that have it, else fp32"
    )
    device: str | None = Field(
        None,
        description="cpu, cuda, cuda:1 or mps, for a run in one process; null: CUDA, else Apple's MPS, else the CPU",
    )
    evaluate_every: int | None = Field(None, ge=1, description="steps between evaluations; null: an epoch")
    keep_checkpoints: int = Field(2, ge=1, description="latest checkpoints kept")
    log_every: int = Field(10, ge=1, description="steps between lines of metrics.jsonl")
    loggers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = Field(
        (), description="where metrics are logged besides metrics.jsonl; each needs its extra"
    )
    sharding: Literal["none", "full"] = Field(
        "none", description="full: shard weights, gradients and AdamW states over the processes (FSDP)"
    )
    start: Literal["average", "source", "probe", "pretrained", "adapted"] = Field(
        "average",
        description="where the method starts: at the mean of the weights before and after the source stage, at its "
        "end, with the probe's or a random head, or at the adapted model of the run that `--from` names",
    )
    baseline: bool = Field(
        True, description="also train a source-only model, to compare with; needed unless start is probe or pretrained"
    )
    baseline_steps: Literal["same", "continued"] = Field(
        "same", description="continued: after the source stage, source-only gets as many further steps as the method"
    )

    @property
    def starts_from_source(self) -> bool:
        """Whether the method needs a source stage before it."""
        return self.start in ("average", "source", "adapted")

    def of_source_stage(self) -> TrainConfig:
        """The same with the length of the source stage."""
        if self.source_steps is None:
            return self
        length = {"max_steps": self.source_steps, "epochs": max(self.epochs, self.source_steps), "source_steps": None}
        return self.model_copy(update=length)

    @field_validator("compile")
    @classmethod
    def _compile_excludes_recomputation(cls, value: bool, info: ValidationInfo) -> bool:
        if value and (info.data.get("checkpoint_activations") or info.data.get("accumulation") == "cached"):
            raise ValueError(
                "a compiled step chooses itself what to recompute; leave train.checkpoint_activations off and "
                "train.accumulation at plain"
            )
        return value

    @field_validator("sharding")
    @classmethod
    def _sharding_excludes_compile(cls, value: str, info: ValidationInfo) -> str:
        if value == "full" and info.data.get("compile"):
            raise ValueError("sharded blocks cannot be compiled: leave train.compile off")
        return value


class SelectionConfig(SettingsSection):
    """Model selection and diagnostics without target labels."""

    keep: int = Field(4, ge=1, description="candidate models kept during training for the selection at its end")
    ship: Literal["best", "adapted"] = Field(
        "best",
        description="what goes to `model/`: the best of probe, source-only and adapted model, or the adapted one",
    )
    second_ground: bool = Field(
        True,
        description="where the pretrained weights know larger images than `data.image_size`, judge by their features "
        "too: one more pass over target and held-out source",
    )
    game: bool = Field(True, description="at each evaluation, measure how far the players are from equilibrium")
    source_contributions: bool = Field(
        False, description="of several sources, also fit the probe without each: what each one contributes"
    )


class Config(SettingsSection):
    """All settings of a run. ``method`` holds the name of the method and its options."""

    seed: int = Field(
        0, ge=0, le=2**63 - 1, description="seed of all random draws: on a CPU the same seed gives the same weights"
    )
    data: DataConfig = DataConfig()
    backbone: BackboneConfig = BackboneConfig()
    method: dict[str, Any] = Field({"name": "pmtrans"}, description="how the model is adapted to the target")
    train: TrainConfig = TrainConfig()
    selection: SelectionConfig = SelectionConfig()

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
