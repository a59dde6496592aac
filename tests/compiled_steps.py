"""Steps of PMTrans as one process of a group takes them, compiled: ``python compiled_steps.py FOLDER``.

What each gives goes into ``compiled-RANK.json``. The compiler's front end and autograd are the real ones, and so is
what they make of DDP and of rows that are divided; C++ code, which takes a minute, is left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch._dynamo.utils import counters

from conftest import random_batch
from pmtrans.backbones.create import create_backbone
from pmtrans.methods import METHODS, Method, Sizes
from pmtrans.methods.method import Moment
from pmtrans.model import Model
from pmtrans.processes.group import Processes, joined
from pmtrans.processes.rows import divided
from pmtrans.training.accelerator import compiled, create_accelerator, prepare
from tiny_data import TINY

PAIRS = 4


def losses_and_gradients(processes: Processes, compile_it: bool) -> list[list[float]]:
    """For each of two steps the loss, and the length of the gradient."""
    torch.manual_seed(0)
    name, options, size = TINY["vit"]
    entry = METHODS["pmtrans"]
    model = Model(create_backbone(name, "none", size, options), 3)
    method: Method = entry.create(model, entry.options(), Sizes(classes=3, source_images=12, target_images=9)).train()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.1)
    accelerator = create_accelerator("fp32", None)
    forward = prepare(accelerator, method)
    if compile_it:
        forward = compiled(forward, accelerator.device, backend="aot_eager")
    batch, found = random_batch(model, PAIRS), []
    for step in (50, 51):
        torch.manual_seed(step)
        with divided(processes.rank, processes.count, PAIRS):
            loss = forward(batch, Moment(step, 100, 10))["loss"]
            loss.backward()
        gradients = [p.grad.flatten() for p in method.parameters() if p.grad is not None]
        found.append([loss.item(), torch.cat(gradients).norm().item()])
        method.zero_grad()
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined() as group:
        steps = losses_and_gradients(group, compile_it=True)
        said = {"steps": steps, "graphs": counters["stats"]["unique_graphs"]}
        (Path(sys.argv[1]) / f"compiled-{group.rank}.json").write_text(json.dumps(said), encoding="utf-8")
