"""Ways through a head: by its last linear layer, whose rows are one direction per class, or with frozen weights."""

from __future__ import annotations

from torch import Tensor, nn
from torch.func import functional_call


def last_linear(head: nn.Module) -> nn.Linear:
    """The layer that gives the logits: the head itself, or the last linear layer of an MLP."""
    return [layer for layer in head.modules() if isinstance(layer, nn.Linear)][-1]


def through_last_layer(head: nn.Module, features_BF: Tensor) -> tuple[Tensor, Tensor]:
    """(what enters the last linear layer, the head's logits), in one pass through the head."""
    layers = list(head) if isinstance(head, nn.Sequential) else [head]
    entered = features_BF
    for layer in layers:
        if layer is last_linear(head):
            entered = features_BF
        features_BF = layer(features_BF)
    return entered, features_BF


def through_frozen(module: nn.Module, inputs: Tensor) -> Tensor:
    """``module(inputs)`` with gradients for the inputs only: for a loss that one player alone moves on."""
    weights = {name: parameter.detach() for name, parameter in module.named_parameters()}
    outputs: Tensor = functional_call(module, weights, (inputs,))
    return outputs
