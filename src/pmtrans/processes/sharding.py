"""Fully sharded training (FSDP): of each transformer block a process keeps a part, and gathers the rest while it runs.

The weights, gradients and AdamW states of the blocks, which are nearly all of a transformer, are divided among the
processes. A block is put together when it is entered and taken apart again when it is left, forward and backward.
What is small (patch embedding, norms, heads, the players' own numbers) stays whole in every process, so a method may
look at it at any time. What a method or a checkpoint holds of a block is a ``DTensor``: a tensor that knows its parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

Some = TypeVar("Some", bound=Tensor)


def whole(value: Tensor) -> Tensor:
    """A plain tensor from the parts of all processes, which must ask together; a plain one is itself."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def part_like(value: Tensor, place: Tensor) -> Tensor:
    """This process's part of a plain tensor, divided as ``place`` is; another shape than its own is left alone."""
    if not isinstance(place, DTensor) or place.shape != value.shape:
        return value
    return distribute_tensor(value.to(place.device), place.device_mesh, place.placements, src_data_rank=None)


def by_sharding(tensors: Iterable[Some]) -> list[list[Some]]:
    """Plain ones and divided ones, which no fused kernel takes together; a kind that is not there is left out."""
    every = list(tensors)
    kinds = [[one for one in every if isinstance(one, DTensor) is divided] for divided in (False, True)]
    return [kind for kind in kinds if kind]


@torch.no_grad()
def gather_state(method: nn.Module, copy: nn.Module | None) -> None:
    """The state of a divided method into a plain copy of it; all processes together, also those without a copy."""
    places = copy.state_dict() if copy is not None else {}
    for name, value in method.state_dict().items():
        full = whole(value)
        if name in places:
            places[name].copy_(full)


def is_sharded(module: nn.Module) -> bool:
    """Whether any parameter is divided; one that is frozen counts too."""
    return any(isinstance(parameter, DTensor) for parameter in module.parameters())


@torch.no_grad()
def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Of what stays whole beside divided blocks: the mean over processes, which FSDP makes for the blocks alone."""
    gradients = [p.grad for p in parameters if p.grad is not None and not isinstance(p, DTensor)]
    if not gradients:
        return
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for gradient, mean in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(mean.view_as(gradient))


def clip_gradients(parameters: Iterable[nn.Parameter], largest: float) -> Tensor:
    """torch's ``clip_grad_norm_``, also for plain and divided parameters together; the norm is a plain tensor."""
    kinds = by_sharding(parameters)
    if len(kinds) < 2:
        return whole(nn.utils.clip_grad_norm_(kinds[0] if kinds else [], largest))
    norms = [nn.utils.get_total_norm([p.grad for p in kind if p.grad is not None]) for kind in kinds]
    norm: Tensor = torch.linalg.vector_norm(torch.stack([whole(one) for one in norms]))
    for kind in kinds:
        nn.utils.clip_grads_with_norm_(kind, largest, norm)
    return norm
