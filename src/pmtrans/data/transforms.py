"""Transforms from a decoded image to the model's input; one evaluation transform for all commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from PIL import Image
from pydantic import AfterValidator, Field
from torch import Tensor
from torchvision.transforms import InterpolationMode, v2

Transform = Callable[[Image.Image], Tensor]
MAX_SIDE = 8192  # pixels, beyond every transformer of timm
Side = Annotated[int, Field(ge=8, le=MAX_SIDE)]
Interpolation = Annotated[str, AfterValidator(lambda name: InterpolationMode(name).value)]


@dataclass(frozen=True)
class Preprocessing:
    """How a backbone's input is prepared; stored with the model and used by every command.

    The limits are of those that are read from a folder.
    """

    image_size: Side
    resize_to: Side
    interpolation: Interpolation
    mean: Annotated[tuple[Annotated[float, Field(ge=-1e4, le=1e4)], ...], Field(min_length=3, max_length=3)]
    std: Annotated[tuple[Annotated[float, Field(ge=1e-4, le=1e4)], ...], Field(min_length=3, max_length=3)]

    def __post_init__(self) -> None:
        if self.resize_to < self.image_size:
            raise ValueError(f"resize_to is {self.resize_to}, less than image_size, {self.image_size}")

    @property
    def crop_ratio(self) -> float:
        return self.image_size / self.resize_to


def preprocessing_for(model_config: dict[str, Any], image_size: int, crop_ratio: float | None) -> Preprocessing:
    """From a timm model's data configuration; if ``crop_ratio`` is None, the backbone's is used."""
    ratio = crop_ratio or float(model_config.get("crop_pct", 0.875))
    return Preprocessing(
        image_size=image_size,
        resize_to=max(image_size, round(image_size / ratio)),
        interpolation=str(model_config.get("interpolation", "bicubic")),
        mean=tuple(float(value) for value in model_config["mean"]),
        std=tuple(float(value) for value in model_config["std"]),
    )


def evaluation_transform(preprocessing: Preprocessing) -> Transform:
    """Resize to a square, centre crop, normalise."""
    transform: Transform = v2.Compose(
        [resize(preprocessing), v2.CenterCrop(preprocessing.image_size), *_to_tensor(preprocessing)]
    )
    return transform


def training_transform(
    preprocessing: Preprocessing, name: str = "paper", flip: bool = True, random_erasing: float = 0.0
) -> Transform:
    """``paper``: resize to a square, random crop, flip; stronger ones add an augmentation policy or random scales."""
    size, mode = preprocessing.image_size, InterpolationMode(preprocessing.interpolation)
    if name == "none":
        steps: list[Any] = [resize(preprocessing), v2.CenterCrop(size)]
    elif name == "resized_crop":
        steps = [v2.RandomResizedCrop(size, interpolation=mode, antialias=True)]
    else:
        steps = [resize(preprocessing), v2.RandomCrop(size)]
    if flip and name != "none":
        steps.append(v2.RandomHorizontalFlip())
    policy = {"randaugment": v2.RandAugment, "autoaugment": v2.AutoAugment, "augmix": v2.AugMix}.get(name)
    if policy is not None:
        steps.append(policy(interpolation=InterpolationMode.BILINEAR))
    erase = [v2.RandomErasing(random_erasing)] if random_erasing else []
    transform: Transform = v2.Compose([*steps, *_to_tensor(preprocessing), *erase])
    return transform


def resize(preprocessing: Preprocessing) -> v2.Resize:
    """The first step of every transform but ``resized_crop``, and what the cache stores; idempotent."""
    side = preprocessing.resize_to
    return v2.Resize((side, side), interpolation=InterpolationMode(preprocessing.interpolation), antialias=True)


def _to_tensor(preprocessing: Preprocessing) -> list[Any]:
    return [
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(list(preprocessing.mean), list(preprocessing.std)),
        v2.ToPureTensor(),
    ]
