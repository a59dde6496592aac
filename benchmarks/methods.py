"""Cost of a training step of each method, relative to source-only: time, arithmetic, memory, parameters.

    python benchmarks/methods.py [--backbone deit_tiny_patch16_224] [--image-size 224] [--batch-size 32]
    python benchmarks/methods.py --write docs/methods.md

Each method runs in a process of its own on random images, past the middle of the training, where all its losses are on;
passes over a whole domain between epochs are not counted. Memory is the peak above what was in use before the model was
built.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import statistics
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from pmtrans.backbones.create import create_backbone
from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.errors import UserError
from pmtrans.methods import METHODS, Method, Sizes
from pmtrans.methods.method import Context, Moment, SourcePass, TargetPass
from pmtrans.model import Model
from pmtrans.training.players import create_optimiser, descending, freeze_others

STEPS = 100  # of the simulated training
BEGIN, END = "<!-- measured cost: begin -->", "<!-- measured cost: end -->"

# on a CPU, processor time: other programs do not count
CLOCK = time.perf_counter if torch.cuda.is_available() else time.process_time


def main() -> None:
    """Print a Markdown table, or put it into a page between its two markers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="deit_tiny_patch16_224")
    parser.add_argument("--options", type=json.loads, default={}, help="JSON passed on to timm, such as a depth")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--classes", type=int, default=31)
    parser.add_argument("--images", type=int, default=800, help="images of each domain, for memory banks")
    parser.add_argument("--steps", type=int, default=5, help="timed steps; the median counts")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--write", type=Path, help="a page to put the table into")
    arguments = parser.parse_args()
    names = ["source_only", *(name for name in arguments.methods if name != "source_only")]
    rows: dict[str, dict[str, Any]] = {}
    for name in names:
        rows[name] = in_own_process(name, arguments)
        print(f"{name}: {rows[name]}", file=sys.stderr)
    text = table(rows, arguments)
    if arguments.write:
        page = arguments.write.read_text(encoding="utf-8")
        before, _, after = page.partition(BEGIN)
        arguments.write.write_text(f"{before}{BEGIN}\n{text}\n{END}{after.partition(END)[2]}", encoding="utf-8")
    else:
        print(text)


def in_own_process(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Forked before anything ran, so that each starts from the same memory."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=measure, args=(name, arguments, sender))
    process.start()
    sender.close()
    try:
        return dict(receiver.recv())
    except EOFError:
        return {"problem": "stopped without a result"}
    finally:
        process.join()


def measure(name: str, arguments: argparse.Namespace, sender: Connection) -> None:
    """Seconds, arithmetic, memory and parameters of one method's step."""
    before = resident()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    try:
        method = create(name, arguments).to(device).train()
    except UserError as error:
        sender.send({"problem": str(error)})
        return
    batch = random_batch(arguments).to(device)
    optimiser = create_optimiser(method, TrainConfig())
    prepare(method, arguments, device)
    seconds = []
    for number in range(arguments.steps + 2):  # two to warm up
        started = CLOCK()
        step(method, optimiser, batch, number)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(CLOCK() - started)
    memory = torch.cuda.max_memory_allocated() if device.type == "cuda" else resident() - before
    with FlopCounterMode(display=False) as counter:
        step(method, optimiser, batch, arguments.steps + 2)
    sender.send(
        {
            "seconds": statistics.median(seconds[2:]),
            "operations": counter.get_total_flops(),
            "memory": memory,
            "parameters": sum(parameter.numel() for parameter in method.parameters() if parameter.requires_grad),
        }
    )


def create(name: str, arguments: argparse.Namespace) -> Method:
    backbone = create_backbone(arguments.backbone, "none", arguments.image_size, arguments.options)
    entry = METHODS[name]
    options = entry.options()
    model = Model(backbone, arguments.classes, options.head)
    return entry.create(model, options, Sizes(arguments.classes, arguments.images, arguments.images))


def random_batch(arguments: argparse.Namespace) -> Batch:
    shape = (arguments.batch_size, 3, arguments.image_size, arguments.image_size)
    labels = torch.arange(arguments.batch_size) // 4 % arguments.classes
    index = torch.arange(arguments.batch_size) % arguments.images
    return Batch(torch.randn(shape), labels, index, torch.randn(shape), index)


def prepare(method: Method, arguments: argparse.Namespace, device: torch.device) -> None:
    """What the loop does between steps up to the one that is timed, on random features."""
    features, images, classes = method.model.backbone.features, arguments.images, arguments.classes
    shapes = (images, features), (images, classes)
    target = TargetPass(*(torch.randn(shape, device=device) for shape in shapes))
    labels = torch.arange(images, device=device) % classes
    source = SourcePass(torch.randn(shapes[0], device=device), torch.randn(shapes[1], device=device), labels)
    context = Context(lambda: target, lambda: source)
    if method.chooses_pairs:
        method.choose_pairs(Moment(0, STEPS, STEPS), context)
    for number in range(STEPS * 3 // 5):
        method.before_step(Moment(number, STEPS, STEPS), context)


def step(method: Method, optimiser: torch.optim.Optimizer, batch: Batch, number: int) -> None:
    """One step of the loop, all phases, past 60 % of the training."""
    moment = Moment(STEPS * 3 // 5 + number % 20, STEPS, STEPS)
    for phase, movers in method.phases(moment).items():
        method(batch, replace(moment, phase=phase))["loss"].backward()
        freeze_others(optimiser.param_groups, movers)
        torch.nn.utils.clip_grad_norm_(descending(optimiser.param_groups), 5.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    method.after_step(moment)


def resident() -> int:
    """The largest memory this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def table(rows: dict[str, dict[str, Any]], arguments: argparse.Namespace) -> str:
    """Markdown, source-only first."""
    base = rows["source_only"]
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU, one process"
    size = f"{arguments.backbone}, {arguments.image_size} px, batch {arguments.batch_size}, {arguments.classes} classes"
    lines = [
        f"{size}; {where}; source-only: {base['seconds']:.3f} s a step, {base['memory'] / 1e6:.0f} MB.",
        "",
        "| method | time | arithmetic | memory | parameters | needs |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        needs = METHODS[name].method.needs
        if "problem" in row:
            lines.append(f"| `{name}` | - | - | - | - | {row['problem']} |")
            continue
        kinds = ("seconds", "operations", "memory", "parameters")
        ratios = " | ".join(f"{row[kind] / base[kind]:.2f}" for kind in kinds)
        lines.append(f"| `{name}` | {ratios} | {needs} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
