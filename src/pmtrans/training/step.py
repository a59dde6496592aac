"""One step: for each phase of the method the gradients of every player, refused if not finite, and the move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from accelerate import Accelerator

from pmtrans.backbones.backbone import backbones_in
from pmtrans.backbones.blocks import refuse_undividable, transformer_blocks
from pmtrans.backbones.frozen import is_frozen
from pmtrans.backbones.recompute import checkpoint_blocks, in_pieces
from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.methods.method import Method, Moment
from pmtrans.processes.sharding import average_gradients, clip_gradients, is_sharded
from pmtrans.training.accelerator import compiled, explained_compilation
from pmtrans.training.failures import FiniteGuard
from pmtrans.training.players import ascending_gradients, descending, freeze_others, set_learning_rates


@dataclass
class Step:
    """``module`` is the method as the accelerator wrapped it. Made once: its switches change the method's backbones."""

    method: Method
    module: Any
    optimiser: torch.optim.Optimizer
    accelerator: Accelerator
    config: TrainConfig
    guard: FiniteGuard

    def __post_init__(self) -> None:
        backbones = backbones_in(self.method)
        self._cached = self.config.accumulation == "cached" and self.config.accumulate > 1
        if self._cached:
            refuse_undividable(backbones)
        for backbone in backbones if self.config.checkpoint_activations else ():
            checkpoint_blocks(block for block in transformer_blocks(backbone) if not is_frozen(block))
        self._sharded = is_sharded(self.method)
        # DDP averages gradients with the last micro-batch only; FSDP with each, or it would have to keep them whole
        self._unexchanged: Callable[[], AbstractContextManager[None]] = getattr(self.module, "no_sync", nullcontext)
        self._forward = compiled(self.module, self.accelerator.device) if self.config.compile else self.module

    def __call__(self, batches: list[Batch], moment: Moment) -> dict[str, Any]:
        """Move every player once; the values are for the log."""
        groups = self.optimiser.param_groups
        rates = set_learning_rates(groups, self.config, moment.step, moment.steps)
        pieces = len(batches) if self._cached else 1
        batches = [joined(batches)] if self._cached else batches
        values: dict[str, Any] = {}
        for phase, movers in self.method.phases(moment).items():
            # gradients of every player
            with explained_compilation() if self.config.compile else nullcontext():
                parts = self._gradients(batches, pieces, replace(moment, phase=phase))
            freeze_others(groups, movers)
            if self._sharded:
                average_gradients(parameter for group in groups for parameter in group["params"])
            parts["gradient_norm"] = clip_gradients(descending(groups), self.config.clip or float("inf"))

            # refuse what is not finite
            self.guard.check(moment.step, batches, {**parts, **self.method.state()}, rates, ascending_gradients(groups))

            # move
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
            values |= parts
        return {**values, **rates}

    def _gradients(self, batches: list[Batch], pieces: int, moment: Moment) -> dict[str, Any]:
        """Gradients of the mean of the micro-batches' losses, and that mean's parts."""
        parts: dict[str, Any] = {}
        for number, batch in enumerate(batches, 1):
            with nullcontext() if number == len(batches) else self._unexchanged():
                with self.accelerator.autocast(), in_pieces(pieces):
                    outputs = self._forward(batch, moment)
                self.accelerator.backward(outputs["loss"] / len(batches))
            for name, value in outputs.items():
                parts[name] = parts.get(name, 0.0) + value.detach() / len(batches)
        return parts


def joined(batches: Sequence[Batch]) -> Batch:
    """The pairs of all batches, in their order."""
    return Batch(*(torch.cat([getattr(batch, one.name) for batch in batches]) for one in fields(Batch)))
