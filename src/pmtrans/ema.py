"""The mean teacher: an exponential moving average of a model (Tarvainen and Valpola, NIPS 2017)."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from pmtrans.model import Model
from pmtrans.processes.sharding import by_sharding


class EMATeacher(nn.Module):
    """A copy of the model that follows it slowly. Its weights are not trained, but a checkpoint holds them."""

    def __init__(self, model: Model, rate: float = 0.999) -> None:
        super().__init__()
        self.rate = rate
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> EMATeacher:
        """A teacher is never in training mode: no dropout, no drop path."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits

    @torch.no_grad()
    def follow(self, model: Model, step: int) -> None:
        """teacher <- a teacher + (1 - a) model, a = min(1 - 1/(i + 1), rate): a plain mean in the beginning."""
        rate = min(1 - 1 / (step + 1), self.rate)
        for mine, newest in zip(by_sharding(self.model.parameters()), by_sharding(model.parameters()), strict=True):
            get_ema_multi_avg_fn(rate)(mine, newest, step)
        for buffer, present in zip(self.model.buffers(), model.buffers(), strict=True):
            buffer.copy_(present)
