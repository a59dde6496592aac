"""What ``step.py`` measures: the bare backbone's step, and the loop's own step of a method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from pmtrans.backbones.create import create_backbone
from pmtrans.backbones.frozen import freeze_blocks
from pmtrans.backbones.lora import add_adapters
from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.data.domain import Domain
from pmtrans.losses import classification_loss
from pmtrans.methods import METHODS, Sizes
from pmtrans.methods.method import Context, Moment, SourcePass, TargetPass
from pmtrans.model import Model
from pmtrans.progress import Reporter
from pmtrans.training.failures import FiniteGuard
from pmtrans.training.players import create_optimiser, fix_betas
from pmtrans.training.step import Step

CLASSES = 31
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
STEPS = 100  # of the simulated training; timed half way, where all losses are on


class Subject(ABC):
    """One training step that can be repeated; ``model`` is inside it."""

    model: Model
    optimiser: torch.optim.Optimizer

    @abstractmethod
    def __call__(self) -> None: ...

    @abstractmethod
    def backward(self, loss: torch.Tensor) -> None:
        """A separate method, so that it can be timed."""


class Bare(Subject):
    """Forward, backward and AdamW of backbone and linear head on 3B images."""

    def __init__(self, backbone: str, pairs: int, size: int) -> None:
        self.model = Model(create_backbone(backbone, "none", size), CLASSES).to(DEVICE).train()
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)
        self.images = torch.randn(3 * pairs, 3, size, size, device=DEVICE)
        self.labels = torch.arange(3 * pairs, device=DEVICE) % CLASSES

    def __call__(self) -> None:
        self.backward(self.loss())
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)

    def loss(self) -> torch.Tensor:
        return classification_loss(self.model(self.images), self.labels)

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()


class OneStep(Subject):
    """The loop's step of a method, with its clipping and its players; ``train`` are switches of the loop."""

    def __init__(
        self, backbone: str, pairs: int, size: int, name: str, switches: dict[str, Any], train: dict[str, Any]
    ) -> None:
        entry = METHODS[name]
        options = entry.options.model_validate(switches)
        self.model = Model(create_backbone(backbone, "none", size), CLASSES, getattr(options, "head", "linear"))
        images = 10 * pairs
        config = TrainConfig.model_validate({"learning_rate": 1e-5, **train})
        freeze_blocks(self.model.backbone, config.freeze_blocks)
        add_adapters(self.model.backbone, config.lora, config.freeze_blocks)
        self.method = entry.create(self.model, options, Sizes(CLASSES, images, images)).to(DEVICE).train()
        fix_betas(self.method, config.freeze_blocks, Reporter(quiet=True))
        self.batches = [random_batch(pairs // config.accumulate, size) for _ in range(config.accumulate)]
        self.optimiser = create_optimiser(self.method, config)
        self.accelerator = Accelerator(cpu=DEVICE.type == "cpu")
        self._before_steps(images)
        guard = FiniteGuard(Path(), Domain(Path(), ()), Domain(Path(), ()))
        self._step = Step(self.method, self.method, self.optimiser, self.accelerator, config, guard)
        self._moment = Moment(STEPS // 2, STEPS, STEPS)

    def _before_steps(self, images: int) -> None:
        """Banks, pseudo labels and chosen pairs, on random features."""
        shapes = (images, self.model.backbone.features), (images, CLASSES)
        target = TargetPass(*(torch.randn(shape, device=DEVICE) for shape in shapes))
        labels = torch.arange(images, device=DEVICE) % CLASSES
        source = SourcePass(torch.randn(shapes[0], device=DEVICE), torch.randn(shapes[1], device=DEVICE), labels)
        context = Context(lambda: target, lambda: source)
        if self.method.chooses_pairs:
            self.method.choose_pairs(Moment(0, STEPS, STEPS), context)
        for number in range(STEPS // 2 + 1):
            self.method.before_step(Moment(number, STEPS, STEPS), context)

    def __call__(self) -> None:
        self._step(self.batches, self._moment)
        self.method.after_step(self._moment)

    def backward(self, loss: torch.Tensor) -> None:
        self.accelerator.backward(loss)


def random_batch(pairs: int, size: int) -> Batch:
    images = torch.randn(2, pairs, 3, size, size)
    labels = torch.arange(pairs) % CLASSES
    return Batch(images[0], labels, torch.arange(pairs), images[1], torch.arange(pairs)).to(DEVICE)
