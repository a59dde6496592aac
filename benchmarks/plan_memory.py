"""What ``--dry-run`` says of memory against what the steps of the training then take, setting by setting, on the CPU.

    python benchmarks/plan_memory.py                 # a table
    python benchmarks/plan_memory.py --json --settings lora checkpoint

Bytes at the peak above those of the program before its model. Each number is of a process of its own, a fork of one
that has imported everything. ``plan`` is what ``--dry-run`` says of a run that fits, ``proposed`` what it works out for
these settings from smaller batches, where the run without them does not fit. ``taken`` is the peak of the training's
own steps; evaluations and checkpoints come after them and need less than a step of a model that fills a machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: this process must have no threads to fork from

import torch

from pmtrans.config import Config
from pmtrans.data.domains import read_data
from pmtrans.machine import begin_peak, peak_memory
from pmtrans.progress import Reporter
from pmtrans.settings import load_config
from pmtrans.training.dry_run.plan import make_plan
from pmtrans.training.dry_run.proposals import propose
from pmtrans.training.train import train

CPU, QUIET = torch.device("cpu"), Reporter(quiet=True)
PAIRS, BLOCKS, STEPS = 16, 6, 4
PLAIN = {
    "freeze_blocks": 0, "lora": 0, "checkpoint_activations": False,
    "batch_size": PAIRS, "accumulate": 1, "accumulation": "plain",
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "full": {},
    "freeze_blocks": {"freeze_blocks": BLOCKS // 2},
    "lora": {"lora": 8},
    "checkpoint": {"checkpoint_activations": True},
    "cached": {"batch_size": PAIRS // 4, "accumulate": 4, "accumulation": "cached"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.settings)
    if given.json:
        print(json.dumps(found))
        return
    print("| setting | taken, MB | plan | proposed |\n| :-- | --: | --: | --: |")
    for name, sizes in found.items():
        shares = (f"{sizes[what] / sizes['taken'] - 1:+.0%}" if what in sizes else "-" for what in ("plan", "proposed"))
        print(f"| {name} | {sizes['taken'] / 1e6:.0f} | {' | '.join(shares)} |")


def measure(names: list[str]) -> dict[str, dict[str, int]]:
    """Bytes by setting and by what they are; of the run without any setting nothing is proposed."""
    found: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder))
        for name in names:
            asked = [what for what in MEASURES if SETTINGS[name] or what != "proposed"]
            found[name] = {what: _in_a_fork(what, name, Path(folder)) for what in asked}
            print(name, found[name], file=sys.stderr, flush=True)
    return found


def _in_a_fork(what: str, name: str, folder: Path) -> int:
    """This process itself never trains: memory that it had freed would be missing in the next one's peak."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            train(configure(folder, TINY), folder / f"warm-{what}-{name}", QUIET)  # imports
            os.write(writing, str(MEASURES[what](configure(folder, SETTINGS[name]), SETTINGS[name])).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading) as answer:
        return int(answer.read())


def write_images(folder: Path) -> None:
    random = np.random.default_rng(0)
    for domain in ("source", "target"):
        for name in ("bike", "lamp", "mug"):
            (folder / domain / name).mkdir(parents=True)
            for number in range(PAIRS):
                pixels = random.integers(0, 256, (100, 100, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / domain / name / f"{number}.png")


TINY = {"batch_size": 2, "max_steps": 1}


def configure(images: Path, changes: dict[str, Any]) -> Config:
    """ViT-tiny with fewer blocks at 96 pixels; to import everything, one block at 32."""
    tiny = changes is TINY
    settings = {
        "data.source": str(images / "source"), "data.target": str(images / "target"),
        "data.image_size": 32 if tiny else 96, "data.workers": 0,
        "backbone.name": "vit_tiny_patch16_224", "backbone.weights": "none",
        "backbone.options": {"depth": 1 if tiny else BLOCKS, **({"embed_dim": 24, "num_heads": 2} if tiny else {})},
        "train.batch_size": PAIRS, "train.max_steps": STEPS, "train.evaluate_every": STEPS, "train.epochs": 99,
        "train.baseline": False, "train.start": "pretrained",
        **{f"train.{name}": value for name, value in changes.items()},
    }  # fmt: skip
    return load_config(None, [], settings)


class _AfterSteps(Reporter):
    """Notes the peak after the last step, before anything is evaluated or saved."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.peak = 0

    def step(self, step: int, rate: float) -> None:
        if step == STEPS:
            self.peak = peak_memory(CPU)


def taken(config: Config, changes: dict[str, Any]) -> int:
    read_data(config, QUIET)
    before, reporter = begin_peak(CPU), _AfterSteps()
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder) / "run", reporter)
    return reporter.peak - before


def planned(config: Config, changes: dict[str, Any]) -> int:
    memory = make_plan(config, QUIET).memory
    return memory.peak - memory.program


def proposed(config: Config, changes: dict[str, Any]) -> int:
    """For the run without these settings."""
    plain = config.model_copy(update={"train": config.train.model_copy(update={name: PLAIN[name] for name in changes})})
    data = read_data(plain, QUIET)
    before = begin_peak(CPU)
    with tempfile.TemporaryDirectory() as folder:
        found = propose(plain, data, Path(folder), PAIRS, BLOCKS, processes=2)
    wanted = {f"train.{name}={str(value).lower() if value is True else value}" for name, value in changes.items()}
    (one,) = (proposal for proposal in found if set(proposal.settings) == wanted)
    return one.alone.peak - before


MEASURES = {"taken": taken, "plan": planned, "proposed": proposed}

if __name__ == "__main__":
    main()
