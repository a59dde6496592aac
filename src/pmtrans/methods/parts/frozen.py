"""A module whose weights stand still while gradients pass through it."""

from __future__ import annotations

from torch import Tensor, nn
from torch.func import functional_call


def through_frozen(module: nn.Module, inputs: Tensor) -> Tensor:
    """``module(inputs)`` with gradients for the inputs only: for a loss that one player alone moves on."""
    weights = {name: parameter.detach() for name, parameter in module.named_parameters()}
    outputs: Tensor = functional_call(module, weights, (inputs,))
    return outputs
