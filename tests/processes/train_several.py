"""Trains a list of runs, one after the other, as one process of a group: ``python train_several.py PLAN.json``.

Then a model is sharded, moved once, and what this process holds of it is written beside the plan.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from no_pickles import forbid_pickles
from pmtrans.backbones.create import create_backbone
from pmtrans.config import TrainConfig
from pmtrans.methods import Sizes
from pmtrans.methods.source_only import SourceOnly, SourceOnlyOptions
from pmtrans.model import Model
from pmtrans.processes.group import joined
from pmtrans.progress import Reporter
from pmtrans.settings import load_config
from pmtrans.signals import Interrupted
from pmtrans.training.accelerator import shard
from pmtrans.training.players import create_optimiser
from pmtrans.training.train import train


class StopsAfter(Reporter):
    """Asks the main process to stop, as a scheduler would; the others learn of it from that one."""

    def __init__(self, last: int | None) -> None:
        super().__init__(quiet=True)
        self.last = last

    def step(self, step: int, rate: float) -> None:
        if step == self.last:
            os.kill(os.getpid(), signal.SIGTERM)


def numbers_held() -> dict[str, int]:
    """How many numbers this process holds of weights, gradients and AdamW's two averages."""
    backbone = create_backbone(
        "vit_tiny_patch16_224", "none", 32, {"depth": 3, "embed_dim": 32, "num_heads": 2, "class_token": True}
    )
    method = SourceOnly(Model(backbone, 3), SourceOnlyOptions(), Sizes(3, 4, 4))
    shard(method, torch.device("cpu"), None)
    optimiser = create_optimiser(method, TrainConfig())
    method.model(torch.rand(4, 3, 32, 32)).square().sum().backward()
    optimiser.step()
    states = [state[name] for state in optimiser.state.values() for name in ("exp_avg", "exp_avg_sq")]
    gradients = [p.grad for p in method.parameters() if p.grad is not None]
    kinds: dict[str, list[Tensor]] = {"weights": list(method.parameters()), "gradients": gradients, "states": states}
    return {name: sum(map(held, tensors)) for name, tensors in kinds.items()}


def held(value: Tensor) -> int:
    return (value.to_local() if isinstance(value, DTensor) else value).numel()


if __name__ == "__main__":
    torch.set_num_threads(1)
    forbid_pickles()
    path = Path(sys.argv[1])
    with joined() as processes:
        for settings, out, stop_after in json.loads(path.read_text(encoding="utf-8")):
            with suppress(Interrupted):
                train(load_config(None, [], settings), Path(out), StopsAfter(stop_after))
        said = json.dumps(numbers_held())
        path.with_name(f"held-{processes.rank}.json").write_text(said, encoding="utf-8")
