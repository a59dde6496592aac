"""One typed tree for everything that a run depends on: YAML recipe, then flags, then ``section.key=value``.

Unknown keys are refused with the nearest known one, values of a wrong type with the key's full name.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from pmtrans.errors import ConfigError, nearest, one_line


class Section(BaseModel):
    """A group of settings; immutable once a run has begun."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataConfig(Section):
    """Where the images are and how they reach the model."""

    source: str | None = Field(None, description="labelled images: class folders, a list file or a table")
    target: str | None = Field(None, description="unlabelled images; labels found there are used by evaluation only")
    root: str | None = Field(None, description="folder that the paths of list files and tables start from")
    source_root: str | None = Field(None, description="the same for the source alone")
    target_root: str | None = Field(None, description="the same for the target alone")
    path_column: str | None = Field(None, description="a table's column of image paths; null: found by its name")
    label_column: str | None = Field(None, description="a table's column of labels; null: found by its name")
    classes: str | None = Field(None, description="file with one class name a line, in the order of the ids")
    image_size: int = Field(224, ge=8, description="pixels a side that the model sees")
    crop_ratio: float | None = Field(0.875, gt=0, le=1, description="crop / resized side; null: the backbone's own")
    augmentation: Literal["paper", "none", "resized_crop", "randaugment", "autoaugment", "augmix"] = Field(
        "paper", description="training transform; paper: resize, random crop, flip"
    )
    flip: bool = Field(True, description="mirror training images at random (off for digits, letters, signs)")
    random_erasing: float = Field(0.0, ge=0, le=1, description="probability of erasing a random box")
    workers: int = Field(2, ge=0, description="loader processes; does not change what is loaded")
    cache: str | None = Field(None, description="folder that keeps resized images; does not change what is loaded")
    on_bad_image: Literal["error", "skip"] = Field("error", description="what to do with unreadable files")
    holdout: float = Field(0.1, ge=0, lt=0.9, description="share of the source kept back to judge models with")


class BackboneConfig(Section):
    """Which transformer, and where its weights come from."""

    name: str = Field("deit_small_patch16_224", description="any timm transformer")
    weights: str = Field("timm", description="none, timm, hf-hub:ORG/NAME, or a safetensors / pth file")
    options: dict[str, Any] = Field(default_factory=dict, description="passed on to timm, such as drop_path_rate")


class TrainConfig(Section):
    """The loop."""

    epochs: int = Field(20, ge=1, description="an epoch is one pass over the longer domain, or `epoch_steps`")
    epoch_steps: int | None = Field(None, ge=1, description="steps of an epoch; null: one pass over the longer domain")
    max_steps: int | None = Field(None, ge=1, description="stop after this many steps")
    batch_size: int = Field(32, ge=1, description="pairs per step and micro-batch")
    accumulate: int = Field(1, ge=1, description="micro-batches per step")
    accumulation: Literal["plain", "cached"] = Field(
        "plain", description="plain: in-batch losses see a micro-batch; cached: all of them, for a second forward pass"
    )
    checkpoint_activations: bool = Field(False, description="recompute each block in backward: less memory, more time")
    compile: bool = Field(False, description="torch.compile the forward pass; needs a C++ compiler")
    learning_rate: float = Field(5e-5, gt=0, description="of the feature extractor")
    head_ratio: float = Field(10.0, gt=0, description="learning rate of new layers / learning_rate")
    weight_decay: float = Field(0.05, ge=0, description="not applied to 1-D parameters and the players' scalars")
    schedule: Literal["cosine", "inverse", "constant"] = Field("cosine", description="inverse: (1 + 0.001 i)^-0.75")
    warmup_steps: int = Field(0, ge=0, description="steps of linear learning-rate warm-up")
    clip: float = Field(5.0, ge=0, description="largest gradient norm of the descending players; 0: off")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="auto: bf16 on GPUs that have it")
    evaluate_every: int | None = Field(None, ge=1, description="steps between evaluations; null: an epoch")
    keep_checkpoints: int = Field(2, ge=1, description="latest checkpoints kept")
    log_every: int = Field(10, ge=1, description="steps between lines of metrics.jsonl")
    loggers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = Field(
        (), description="where the metrics go besides metrics.jsonl; each needs its extra"
    )
    sharding: Literal["none", "full"] = Field(
        "none", description="full: several processes divide weights, gradients and AdamW states among them (FSDP)"
    )
    baseline: bool = Field(True, description="train source-only too, to compare with")

    @field_validator("compile")
    @classmethod
    def _compiled_whole(cls, value: bool, info: ValidationInfo) -> bool:
        if value and (info.data.get("checkpoint_activations") or info.data.get("accumulation") == "cached"):
            raise ValueError(
                "a compiled step decides itself what it computes again; leave train.checkpoint_activations off and "
                "train.accumulation at plain"
            )
        return value

    @field_validator("sharding")
    @classmethod
    def _not_compiled(cls, value: str, info: ValidationInfo) -> str:
        if value == "full" and info.data.get("compile"):
            raise ValueError("blocks that are put together as they are entered are not compiled: leave compile off")
        return value


class SelectionConfig(Section):
    """How a run judges itself without target labels."""

    keep: int = Field(4, ge=1, description="models kept while training, to choose from at the end")
    game: bool = Field(True, description="measure at each evaluation how far the players are from an equilibrium")


class Config(Section):
    """Everything a run depends on. ``method`` holds the method's name and its switches."""

    seed: int = Field(0, ge=0)
    data: DataConfig = DataConfig()
    backbone: BackboneConfig = BackboneConfig()
    method: dict[str, Any] = {"name": "pmtrans"}
    train: TrainConfig = TrainConfig()
    selection: SelectionConfig = SelectionConfig()

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def load_config(
    recipe: Path | None = None, overrides: Iterable[str] = (), flags: dict[str, Any] | None = None
) -> Config:
    """Recipe, then flags (dotted names, None: not given), then overrides ``section.key=value``; later ones win."""
    tree = read_recipe(recipe) if recipe is not None else {}
    for key, value in (flags or {}).items():
        if value is not None:
            _put(tree, key, value)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"Override {one_line(override)!r} is not of the form section.key=value.")
        try:
            _put(tree, key.strip(), yaml.safe_load(text))
        except yaml.YAMLError:
            raise ConfigError(f"Override {one_line(override)!r}: the value is not valid YAML.") from None
    return validate(tree)


def read_recipe(path: Path) -> dict[str, Any]:
    """A YAML file as a tree: of the user, or by its name (``office-31/deit``) one that comes with the package."""
    known = {} if path.is_file() else packaged_recipes()
    file = known.get(path.as_posix().removesuffix(".yaml").removeprefix("recipes/"), path)
    try:
        tree = yaml.safe_load(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"Recipe {one_line(path)!r} does not exist, as a file or among those of the package."
            f"{nearest(path.as_posix(), known)}"
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"Recipe {one_line(path)!r} cannot be read: {one_line(error, 150)}") from None
    if not isinstance(tree or {}, dict):
        raise ConfigError(f"Recipe {one_line(path)!r} is not a mapping of sections.")
    return tree or {}


def packaged_recipes() -> dict[str, Path]:
    """Files by name, such as ``small/trial``; in a checkout they lie beside ``src``."""
    places = (Path(__file__).with_name("recipes"), Path(__file__).parents[2] / "recipes")
    home = next((place for place in places if place.is_dir()), None)
    return {} if home is None else {_recipe_name(file, home): file for file in sorted(home.rglob("*.yaml"))}


def _recipe_name(file: Path, home: Path) -> str:
    return file.relative_to(home).with_suffix("").as_posix()


def validate(tree: dict[str, Any]) -> Config:
    """A configuration, its method's switches filled in; the first mistake is named in one line."""
    from pmtrans.methods import (
        METHODS,  # here: a configuration error should not wait for torch longer than needed
    )

    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_explain(error, Config, "")) from None
    switches = dict(config.method)
    name = switches.pop("name", "pmtrans")
    if name not in METHODS:
        raise ConfigError(
            f"Unknown method {one_line(name)!r}.{nearest(str(name), METHODS)} Known: {', '.join(METHODS)}."
        )
    try:
        options = METHODS[name].options.model_validate(switches)
    except ValidationError as error:
        raise ConfigError(_explain(error, METHODS[name].options, "method.")) from None
    return config.model_copy(update={"method": {"name": name, **options.model_dump(mode="json")}})


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        if not isinstance(tree.setdefault(section, {}), dict):
            raise ConfigError(f"Key {one_line(key)!r}: {section!r} is a value, not a section.")
        tree = tree[section]
    tree[last] = value


def _explain(error: ValidationError, model: type[BaseModel], prefix: str) -> str:
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    key = one_line(prefix + ".".join(place))
    if first["type"] == "extra_forbidden":
        known = _keys(model, prefix)
        return f"Unknown key {key!r}.{nearest(key, known)}"
    said = first["msg"].removeprefix("Value error, ")
    return f"Key {key or prefix.rstrip('.')!r} cannot be {one_line(first['input'], 60)!r}: {one_line(said)}."


def _keys(model: type[BaseModel], prefix: str) -> list[str]:
    keys: list[str] = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            keys += _keys(inner, f"{prefix}{name}.")
        else:
            keys.append(prefix + name)
    return keys
