"""accelerate, set up for one process or for a group whose members all see whole batches."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.state import AcceleratorState

from pmtrans.methods.method import Method
from pmtrans.processes.sharding import shard

LOW_PRECISIONS = {"bf16": torch.bfloat16}  # fp16 would need a loss scaler, and its state in every checkpoint


def create_accelerator(wanted_precision: str) -> Accelerator:
    """Buffers are the same in all processes by themselves; a phase of a method may leave parameters unused."""
    ddp = DistributedDataParallelKwargs(find_unused_parameters=True, broadcast_buffers=False)
    on_cpu = not torch.cuda.is_available()
    AcceleratorState._reset_state()  # a notebook may train twice, with another precision
    return Accelerator(mixed_precision=precision(wanted_precision), cpu=on_cpu, kwargs_handlers=[ddp])


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


def precision(wanted: str) -> str:
    """accelerate's name; ``auto``: bf16 on a GPU that has it, float32 elsewhere (bf16 is emulated on most CPUs)."""
    if wanted == "auto":
        return "bf16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "no"
    return "no" if wanted == "fp32" else wanted
