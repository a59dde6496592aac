"""One training step against the bare backbone: the same 3B images forward, backward and AdamW, in the same process.

python benchmarks/step.py --backbone deit_tiny_patch16_224 --batch 8 --image-size 224 --json

Bare and step alternate, the ratio is that of the medians. Peak memory is measured in a process of its own for each
(resident memory above what stood before the step; on a GPU the allocator's own peak).
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from pmtrans.backbones.create import create_backbone
from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.losses import classification_loss
from pmtrans.methods import METHODS, Sizes
from pmtrans.methods.method import Moment
from pmtrans.model import Model
from pmtrans.training.players import create_optimiser, descending

CLASSES = 31
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def random_batch(pairs: int, size: int) -> Batch:
    images = torch.randn(2, pairs, 3, size, size)
    labels = torch.arange(pairs) % CLASSES
    return Batch(images[0], labels, torch.arange(pairs), images[1], torch.arange(pairs)).to(DEVICE)


def bare_step(backbone: str, pairs: int, size: int) -> Callable[[], None]:
    """Forward, backward and AdamW of backbone and linear head on 3B images."""
    model = Model(create_backbone(backbone, "none", size), CLASSES).to(DEVICE).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    images = torch.randn(3 * pairs, 3, size, size, device=DEVICE)
    labels = torch.arange(3 * pairs, device=DEVICE) % CLASSES

    def step() -> None:
        classification_loss(model(images), labels).backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def method_step(backbone: str, pairs: int, size: int, name: str, switches: dict[str, Any]) -> Callable[[], None]:
    """What the loop does between two batches: every phase of a method, clipped and stepped."""
    entry = METHODS[name]
    options = entry.options.model_validate(switches)
    head = getattr(options, "head", "linear")
    model = Model(create_backbone(backbone, "none", size), CLASSES, head)
    method = entry.create(model, options, Sizes(CLASSES, 10 * pairs, 10 * pairs)).to(DEVICE).train()
    config = TrainConfig(learning_rate=1e-5)
    optimiser = create_optimiser(method, config)
    batch = random_batch(pairs, size)
    clipped = descending(optimiser.param_groups)

    def step() -> None:
        for phase in method.phases:
            moment = Moment(50, 100, 10, phase)
            method(batch, moment)["loss"].backward()
            torch.nn.utils.clip_grad_norm_(clipped, config.clip)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        method.after_step(moment)

    return step


def seconds(step: Callable[[], None]) -> float:
    begin = time.perf_counter()
    step()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def peak_memory(step: Callable[[], None]) -> int:
    """Bytes above what stood before, at the highest moment of two steps."""
    if DEVICE.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        step()
        return torch.cuda.max_memory_allocated() - before
    with open("/proc/self/statm", encoding="ascii") as file:
        before = int(file.read().split()[1]) * resource.getpagesize()
    step()
    step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before


def memory_of(which: str, given: argparse.Namespace) -> int:
    """In a fresh process, as the highest resident memory of a process never falls."""
    command = [sys.executable, __file__, "--memory-of", which, *sys.argv[1:]]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def create(which: str, given: argparse.Namespace) -> Callable[[], None]:
    if which == "bare":
        return bare_step(given.backbone, given.batch, given.image_size)
    switches = {"warmup": 0.0} if given.method == "pmtrans" else {}
    switches |= dict(pair.split("=", 1) for pair in given.switch)
    return method_step(given.backbone, given.batch, given.image_size, given.method, switches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="deit_tiny_patch16_224")
    parser.add_argument("--batch", type=int, default=8, help="pairs")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--method", default="pmtrans")
    parser.add_argument("--switch", action="append", default=[], metavar="KEY=VALUE", help="a switch of the method")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--memory-of", choices=("bare", "step"), help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.memory_of:
        print(peak_memory(create(given.memory_of, given)))
        return
    bare, step = create("bare", given), create("step", given)
    for warm in (bare, step, bare, step):
        warm()
    times = [(seconds(bare), seconds(step)) for _ in range(given.repeats)]
    bare_seconds, step_seconds = (statistics.median(column) for column in zip(*times, strict=True))
    result = {
        "backbone": given.backbone,
        "method": given.method,
        "seconds_bare": bare_seconds,
        "seconds_step": step_seconds,
        "time_ratio": statistics.median(ours / theirs for theirs, ours in times),
        "memory_ratio": memory_of("step", given) / memory_of("bare", given),
    }
    if given.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:14} {value if isinstance(value, str) else format(value, '.3f')}")


if __name__ == "__main__":
    main()
