"""One training step against the bare backbone: the same 3B images forward, backward and AdamW, in the same process.

    python benchmarks/step.py --backbone deit_tiny_patch16_224 --batch 8 --image-size 224 --json
    python benchmarks/step.py --methods all                      # every rival beside it
    python benchmarks/step.py --train accumulate=4 --train accumulation=cached   # a switch of the loop, 4 x 2 pairs
    python benchmarks/step.py --profile                          # the parts of a step, in ms
    python benchmarks/step.py --growth                           # exponents in B, N, D, K and n_t

Bare and step alternate; the ratio is the median of the ratios of neighbours. Peak memory is measured in a process of
its own for each (resident memory above what stood before the step; on a GPU the allocator's own peak). On a busy
machine ``--clock process`` with OMP_NUM_THREADS=1 counts the time that the process had, not the time that passed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

import torch
from step_growth import growth_table
from step_profile import profile_table
from step_subjects import DEVICE, Bare, OneStep, Subject

from pmtrans.errors import UserError
from pmtrans.machine import forget_peak, peak_memory, used_memory
from pmtrans.methods import METHODS

CLOCKS = {"wall": time.perf_counter, "process": time.process_time}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="deit_tiny_patch16_224")
    parser.add_argument("--batch", type=int, default=8, help="pairs of a step, over all its micro-batches")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--method", default="pmtrans", choices=list(METHODS))
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="several methods in a table; all: every one")
    parser.add_argument("--switch", action="append", default=[], metavar="KEY=VALUE", help="a switch of the method")
    parser.add_argument("--train", action="append", default=[], metavar="KEY=VALUE", help="a switch of the loop")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--no-memory", action="store_true", help="leave the two processes for memory out")
    parser.add_argument("--profile", action="store_true", help="the parts of a step")
    parser.add_argument("--growth", action="store_true", help="cost of the alignment against its sizes")
    parser.add_argument("--memory-of", choices=("bare", "step"), help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.memory_of:
        print(peak_of(subject(given.memory_of, given)))
    elif given.growth:
        print(growth_table(given.repeats, CLOCKS[given.clock]), end="")
    elif given.profile:
        subjects = {which: subject(which, given) for which in ("bare", "step")}
        print(profile_table(subjects, given.repeats, CLOCKS[given.clock]), end="")
    elif given.methods:
        print(methods_table(given), end="")
    elif given.json:
        print(json.dumps(measure(given)))
    else:
        for name, value in measure(given).items():
            print(f"{name:14} {format(value, '.3f') if isinstance(value, float) else value}")


def subject(which: str, given: argparse.Namespace) -> Subject:
    if which == "bare":
        return Bare(given.backbone, given.batch, given.image_size)
    switches = dict(pair.split("=", 1) for pair in given.switch)
    train = dict(pair.split("=", 1) for pair in given.train)
    return OneStep(given.backbone, given.batch, given.image_size, given.method, switches, train)


def measure(given: argparse.Namespace) -> dict[str, Any]:
    clock = CLOCKS[given.clock]
    bare, step = subject("bare", given), subject("step", given)
    for warm in (bare, step, bare, step):
        warm()
    times = [(seconds(bare, clock), seconds(step, clock)) for _ in range(given.repeats)]
    bare_seconds, step_seconds = (statistics.median(column) for column in zip(*times, strict=True))
    result = {
        "backbone": given.backbone,
        "method": given.method,
        "seconds_bare": bare_seconds,
        "seconds_step": step_seconds,
        "time_ratio": statistics.median(ours / theirs for theirs, ours in times),
    }
    if not given.no_memory:
        bytes_bare, bytes_step = (memory_of(which, given) for which in ("bare", "step"))
        result |= {"bytes_bare": bytes_bare, "bytes_step": bytes_step, "memory_ratio": bytes_step / bytes_bare}
    return result


def seconds(step: Subject, clock: Any) -> float:
    begin: float = clock()
    step()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    return float(clock() - begin)


def peak_of(step: Subject) -> int:
    """Bytes above what stood before, at the highest moment of two steps."""
    forget_peak(DEVICE)
    before = used_memory(DEVICE)
    step()
    step()
    return peak_memory(DEVICE) - before


def memory_of(which: str, given: argparse.Namespace) -> int:
    """In a fresh process: memory that another one has freed is not always given back."""
    command = [sys.executable, __file__, "--memory-of", which, "--method", given.method]
    command += ["--backbone", given.backbone, "--batch", str(given.batch), "--image-size", str(given.image_size)]
    for flag, pairs in (("--switch", given.switch), ("--train", given.train)):
        command += [word for pair in pairs for word in (flag, pair)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1])


def methods_table(given: argparse.Namespace) -> str:
    """Markdown, a method a line; the ratio of each is to the bare backbone on 3B images."""
    lines = [
        f"{given.backbone}, {given.image_size} px, {given.batch} pairs, {given.clock} time, {given.repeats} repeats\n",
        "| method | time ratio | memory ratio | a step |",
        "| :-- | --: | --: | :-- |",
    ]
    for name in METHODS if given.methods == ["all"] else given.methods:
        given.method = name
        try:
            found = measure(given)
        except UserError as error:
            lines.append(f"| {name} | - | - | {error} |")
            continue
        memory = f"{found['memory_ratio']:.2f}" if "memory_ratio" in found else "-"
        lines.append(f"| {name} | {found['time_ratio']:.2f} | {memory} | {METHODS[name].method.needs} |")
        print(lines[-1], file=sys.stderr)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
