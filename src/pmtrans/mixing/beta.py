"""Player P: the learnable Beta distribution that the mixing ratios are drawn from.

Its parameters are the concentrations (b, g). They move by projected gradient ascent on the cross entropy: unbounded
ascent would drive both to 0 (masks of zeros and ones), so they are kept in a range.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Beta

from pmtrans.machine import fallback_device


def softplus_inverse(value: float) -> float:
    """x such that softplus(x) = value."""
    return value + math.log(-math.expm1(-value))


def draw(b: Tensor, g: Tensor, shape: tuple[int, ...] = ()) -> Tensor:
    """Ratios from Beta(b, g), reparameterised: gradients reach both concentrations."""
    place = fallback_device(b.device)
    ratios: Tensor = Beta(b.to(place), g.to(place), validate_args=False).rsample(shape)
    return ratios.to(b.device)


class LearnableBeta(nn.Module):
    """Beta(b, g) with b, g = floor + softplus(raw), kept in [floor, ceiling]; samples are reparameterised."""

    def __init__(self, start: tuple[float, float], floor: float, ceiling: float) -> None:
        super().__init__()
        self.floor = floor
        self.ceiling = ceiling
        self.raw = nn.Parameter(torch.tensor([softplus_inverse(value - floor) for value in start]))
        self._lowest = softplus_inverse(0.02)  # below, softplus saturates and its gradient vanishes

    def concentrations(self) -> Tensor:
        """(b, g) in float32, differentiable."""
        return self.floor + F.softplus(self.raw.float())

    def sample(self, shape: tuple[int, ...]) -> Tensor:
        """Ratios in float32 under any autocast; gradients reach both concentrations."""
        with torch.autocast(self.raw.device.type, enabled=False):
            b, g = self.concentrations()
            return draw(b, g, shape)

    @torch.no_grad()
    def project(self) -> None:
        """Clamp to the range, after an optimiser step."""
        self.raw.clamp_(self._lowest, softplus_inverse(self.ceiling - self.floor))
