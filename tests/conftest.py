"""Tiny transformers and generated images: milliseconds each."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm.data
import torch
from hypothesis import settings

from pmtrans.backbones.create import create_backbone
from pmtrans.config import BackboneConfig
from pmtrans.data.batch import Batch
from pmtrans.data.transforms import preprocessing_for
from pmtrans.machine import avoid_broken_tiles
from pmtrans.model import Model
from pmtrans.progress import Reporter
from pmtrans.run.model_folder import TrainedModel, save_model
from pmtrans.settings import load_config
from pmtrans.training.train import train
from tiny_data import TINY, write_domain

torch.set_num_threads(1)
avoid_broken_tiles()  # tests compute in bf16 too

# Where CI is set, every run of a commit tries the same examples: a failure is of that commit, and can be repeated.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

pytest_plugins = ["tiny_run", "few_digits", "browser", "made_up_evidence"]


@pytest.fixture
def tiny() -> Callable[..., Model]:
    """``tiny("vit")``: a random model of that family with 3 classes."""

    def create(
        family: str = "vit", classes: int = 3, head: Any = "linear", seed: int = 0, bottleneck: int = 0
    ) -> Model:
        torch.manual_seed(seed)
        name, options, size = TINY[family]
        return Model(create_backbone(name, "none", size, options, bottleneck), classes, head)

    return create


@pytest.fixture
def lively(tiny: Callable[..., Model]) -> Callable[[str], Model]:
    """As ``tiny``, with an attention far from even: fresh weights are so small that most mistakes would not show."""

    def create(family: str = "vit") -> Model:
        model = tiny(family).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim > 1:
                    parameter.normal_(std=0.3)
                elif "gamma" in name:
                    parameter.fill_(1.0)
        return model

    return create


def random_batch(model: Model, pairs: int = 4, classes: int = 3, targets: int = 9, seed: int = 0) -> Batch:
    """Random images with labels that repeat, and distinct target indices."""
    generator = torch.Generator().manual_seed(seed)
    shape = (pairs, 3, model.backbone.image_size, model.backbone.image_size)
    return Batch(
        torch.randn(shape, generator=generator),
        torch.arange(pairs) % classes,
        torch.arange(pairs),
        torch.randn(shape, generator=generator),
        torch.randperm(targets, generator=generator)[:pairs],
    )


@pytest.fixture
def batch_for() -> Callable[..., Batch]:
    return random_batch


@pytest.fixture
def two_domains(tmp_path: Path) -> tuple[Path, Path]:
    """A source and a target of three classes each."""
    classes = ["ant", "bee", "cat"]
    source = write_domain(tmp_path / "source", classes, 8, tint=0)
    return source, write_domain(tmp_path / "target", classes, 6, tint=60, seed=1)


TINY_SETTINGS = (
    "backbone.name=vit_tiny_patch16_224",
    "backbone.weights=none",
    "backbone.options={depth: 2, embed_dim: 32, num_heads: 2}",
    "data.image_size=32",
    "data.workers=0",
    "train.batch_size=4",
    "train.max_steps=6",
    "train.log_every=1",
)


@pytest.fixture
def tiny_settings() -> list[str]:
    """Overrides that make any training take a second."""
    return list(TINY_SETTINGS)


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with its baseline, made once; classes with names that a page must survive. Do not write to it."""
    home = tmp_path_factory.mktemp("trained")
    classes = ["ant & $bee$", "<script>alert(1)<", "very " + 40 * "long "]
    source = write_domain(home / "source", classes, 8, tint=0)
    target = write_domain(home / "target", classes, 6, tint=60, seed=1)
    flags = {"data.source": str(source), "data.target": str(target)}
    config = load_config(None, [*TINY_SETTINGS, "train.evaluate_every=2"], flags)
    train(config, home / "run", Reporter(quiet=True))
    return home / "run"


@pytest.fixture
def saved_model(tmp_path: Path) -> Callable[..., Path]:
    """``saved_model("vit")``: a model folder whose head answers decidedly, as that of a trained model does."""

    def save(family: str = "vit", temperature: float = 1.0, head: Any = "linear", name: str = "model") -> Path:
        torch.manual_seed(0)
        backbone_name, options, size = TINY[family]
        model = Model(create_backbone(backbone_name, "none", size, options), 3, head)
        for parameter in model.head.parameters():
            torch.nn.init.normal_(parameter)
        timm_config = timm.data.resolve_data_config({}, model=model.backbone.trunk)
        backbone = BackboneConfig(name=backbone_name, weights="none", options=options)
        preprocessing = preprocessing_for(timm_config, size, 0.875)
        save_model(tmp_path / name, TrainedModel(model, ("ant", "bee", "cat"), preprocessing, backbone, temperature))
        return tmp_path / name

    return save
