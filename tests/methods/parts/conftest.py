"""Tiny transformers whose attention is far from even: fresh weights are so small that most mistakes would not show."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pmtrans.model import Model


@pytest.fixture
def lively(tiny: Callable[..., Model]) -> Callable[[str], Model]:
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
