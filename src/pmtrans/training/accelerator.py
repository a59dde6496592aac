"""accelerate, set up for one process or for a group whose members all see whole batches.

The forward pass through ``torch.compile``, and one line where it is not available.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from pmtrans.backbones.backbone import backbones_in
from pmtrans.backbones.blocks import transformer_blocks
from pmtrans.errors import ConfigError, ModelError, TrainingError, one_line
from pmtrans.machine import avoid_broken_tiles, choose_device, keep_freed_memory
from pmtrans.methods.method import Method

_DEVICE = "ACCELERATE_TORCH_DEVICE"
LOW_PRECISIONS = {"bf16": torch.bfloat16}  # fp16 would need a loss scaler, and its state in every checkpoint


def create_accelerator(wanted_precision: str, wanted_device: str | None = None) -> Accelerator:
    """Buffers are the same in all processes by themselves; a phase of a method may leave parameters unused."""
    ddp = DistributedDataParallelKwargs(find_unused_parameters=True, broadcast_buffers=False)
    device = choose_device(wanted_device)
    if wanted_device is not None and dist.is_initialized():
        raise ConfigError("train.device is for one process: of several each takes its own CUDA GPU, or the CPU.")
    if device.type == "cpu":
        keep_freed_memory()
        if wanted_precision == "bf16":
            avoid_broken_tiles()
    AcceleratorState._reset_state(not dist.is_initialized())  # a notebook may train twice, and otherwise
    kwargs: dict[str, Any] = {"mixed_precision": precision(wanted_precision, device), "kwargs_handlers": [ddp]}
    with _named_to_accelerate(wanted_device):
        return Accelerator(cpu=device.type == "cpu", **kwargs)


@contextmanager
def _named_to_accelerate(device: str | None) -> Iterator[None]:
    """accelerate takes a device of one process by this variable only."""
    before = os.environ.get(_DEVICE)
    if device is not None and torch.device(device).type != "cpu":
        os.environ[_DEVICE] = device
    try:
        yield
    finally:
        os.environ.pop(_DEVICE, None)
        if before is not None:
            os.environ[_DEVICE] = before


def prepare(accelerator: Accelerator, method: Method, sharded: bool = False) -> Any:
    """The method on its device, as a step calls it: in a group wrapped by DDP, which averages gradients, or sharded.

    Before the optimiser is made: sharding replaces parameters.
    """
    if sharded:  # before the move, so that no device ever holds the whole
        shard(method, accelerator.device, LOW_PRECISIONS.get(accelerator.mixed_precision))
    method.to(accelerator.device)
    if sharded:
        return method
    with warnings.catch_warnings():  # DDP has a new name for broadcast_buffers, accelerate has not
        warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
        return accelerator.prepare(method)


def precision(wanted: str, device: torch.device) -> str:
    """accelerate's name; ``auto``: bf16 on a CUDA GPU that has it, float32 elsewhere.

    Most CPUs emulate bf16, and on MPS nobody has measured it here.
    """
    if wanted == "bf16" and device.type == "mps" and not torch.backends.mps.is_macos_or_newer(14, 0):
        raise ConfigError("train.precision=bf16 on MPS needs macOS 14 or newer: take train.precision=fp32.")
    if wanted == "auto":
        return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "no"
    return "no" if wanted == "fp32" else wanted


def compiled(module: nn.Module, device: torch.device, backend: str = "inductor") -> Any:
    """A callable beside the module: the module itself, its names and its state stay as they are."""
    if backend == "inductor":
        refuse_without_compiler(device)
    return torch.compile(module, backend=backend)


def refuse_without_compiler(device: torch.device) -> None:
    """Reported before the first step instead of during it."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler
    from torch.utils._triton import has_triton

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        raise ConfigError(
            "train.compile=true needs a C++ compiler, and none is found: install g++ or clang, name one in the "
            "environment variable CXX, or leave train.compile off."
        ) from None
    if device.type == "cuda" and not has_triton():
        raise ConfigError("train.compile=true on a GPU needs Triton: pip install triton, or leave train.compile off.")


@contextmanager
def explained_compilation() -> Iterator[None]:
    """A compiler that is there and fails ends the run in one line."""
    from torch._dynamo.exc import BackendCompilerFailed
    from torch._inductor.exc import InductorError

    try:
        yield
    except (BackendCompilerFailed, InductorError) as error:
        raise TrainingError(
            f"torch.compile failed ({one_line(str(error).strip().splitlines()[0], 200)}): leave train.compile off."
        ) from None


def refuse_unshardable(method: nn.Module) -> None:
    """What cannot be divided: a backbone without blocks in a row, or whose blocks have scalars or share weights."""
    for backbone in backbones_in(method):
        try:
            parameters = [parameter for block in transformer_blocks(backbone) for parameter in block.parameters()]
        except ModelError:
            parameters = []
        if not parameters or len(set(parameters)) < len(parameters) or any(p.ndim == 0 for p in parameters):
            raise ConfigError(
                f"train.sharding=full cannot divide backbone {backbone.name!r}, which is no row of blocks with weights "
                "of their own: train with train.sharding=none."
            )


def shard(method: nn.Module, device: torch.device, low_precision: torch.dtype | None) -> None:
    """Divide the blocks of all backbones; to be done before an optimiser is made, as the parameters are new ones.

    ``low_precision``: what autocast would make of the matrices. Here they are exchanged in it already; else autograd
    would keep autocast's copy of every block from forward to backward.
    """
    # what leaves a block may be a view, which is harmless as long as no timm model writes into it
    warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(
        param_dtype=low_precision,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
        param_dtype_override_fn=lambda parameter: parameter.dtype if parameter.ndim < 2 else None,
    )
    for backbone in backbones_in(method):
        for block in transformer_blocks(backbone):
            fully_shard(block, mesh=mesh, mp_policy=policy)
        small = {parameter for parameter in backbone.parameters() if not isinstance(parameter, DTensor)}
        fully_shard(backbone, mesh=mesh, ignored_params=small)  # owns nothing: it lets one block fetch the next
        register_fsdp_forward_method(backbone, "encode")
