"""One step: for each phase of the method forward, backward, clip, and the players that move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from pmtrans.data.batch import Batch
from pmtrans.methods.method import Method, Moment
from pmtrans.processes.sharding import average_gradients, clip_gradients
from pmtrans.training.players import ascending_gradients, descending, rest

Refuse = Callable[[dict[str, Any], list[Tensor]], None]


@dataclass
class Step:
    """``module`` is the method as the accelerator wrapped it; ``clip`` 0: gradients are not clipped."""

    method: Method
    module: Any
    optimiser: torch.optim.Optimizer
    accelerator: Accelerator
    clip: float

    def __call__(self, batches: list[Batch], moment: Moment, refuse: Refuse) -> dict[str, Any]:
        """Move every player once; the values are for the log. ``refuse`` may raise before anything moves."""
        groups = self.optimiser.param_groups
        values: dict[str, Any] = {}
        for phase, movers in self.method.phases.items():
            parts = self._gradients(batches, replace(moment, phase=phase))
            rest(groups, movers)
            average_gradients(parameter for group in groups for parameter in group["params"])
            parts["gradient_norm"] = clip_gradients(descending(groups), self.clip or float("inf"))
            refuse({**parts, **self.method.state()}, ascending_gradients(groups))
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
            values |= parts
        return values

    def _gradients(self, batches: list[Batch], moment: Moment) -> dict[str, Any]:
        """Gradients of the mean of the micro-batches' losses, and that mean's parts."""
        parts: dict[str, Any] = {}
        for batch in batches:
            with self.accelerator.autocast():
                outputs = self.module(batch, moment)
            self.accelerator.backward(outputs["loss"] / len(batches))
            for name, value in outputs.items():
                parts[name] = parts.get(name, 0.0) + value.detach() / len(batches)
        return parts
