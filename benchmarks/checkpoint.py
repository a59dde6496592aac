"""What a checkpoint costs: the loop's wait (a copy to host memory) and the disk's share, beside 100 steps of training.

    python benchmarks/checkpoint.py [--backbone vit_tiny_patch16_224] [--size 224] [--batch 8] [--steps 10]

Times are medians; the steps are real steps of PMTrans (forward of 3B, backward, AdamW), the checkpoints real ones
written by the saver's thread, flushed to the disk. ``--steps`` are measured and scaled to 100.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from pmtrans.backbones.create import create_backbone
from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.methods import METHODS, Sizes
from pmtrans.methods.method import Moment
from pmtrans.model import Model
from pmtrans.training.checkpoint import load_snapshot, save_snapshot, take_snapshot
from pmtrans.training.players import create_optimiser
from pmtrans.training.saver import Saver


def seconds(action: Callable[[], object], times: int) -> float:
    """The median of several runs of ``action``."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        action()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="vit_tiny_patch16_224")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--folder", help="where to write; default: the system's temporary folder")
    arguments = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = Model(create_backbone(arguments.backbone, "none", arguments.size), classes=31)
    entry = METHODS["pmtrans"]
    method = entry.create(model, entry.options(), Sizes(31, 64, 64)).to(device)
    optimiser = create_optimiser(method, TrainConfig())
    shape = (arguments.batch, 3, arguments.size, arguments.size)
    index = torch.arange(arguments.batch)
    batch = Batch(torch.randn(shape), index % 31, index, torch.randn(shape), index).to(device)

    def step() -> None:
        method(batch, Moment(90, 100, 10))["loss"].backward()
        optimiser.step()
        optimiser.zero_grad()
        if device.type == "cuda":
            torch.cuda.synchronize()

    step()
    hundred = 100 * seconds(step, arguments.steps)
    copy = seconds(lambda: take_snapshot(1, method, optimiser, 0.0, []), 5)
    snapshot = take_snapshot(1, method, optimiser, 0.0, [])
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        written = seconds(lambda: save_snapshot(folder, snapshot, keep=1), 3)
        megabytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
        read = seconds(lambda: load_snapshot(folder / snapshot.name), 3)

        saver = Saver(folder / "threaded", keep=1)
        begin = time.perf_counter()
        saver.save(take_snapshot(2, method, optimiser, 0.0, []))
        waits = time.perf_counter() - begin
        beside = statistics.median([seconds(step, 1) for _ in range(3)])
        saver.wait()

    print(f"{arguments.backbone}, {arguments.size} px, {arguments.batch} pairs, {device.type}: {megabytes:.0f} MB")
    rows = {
        "100 steps": hundred,
        "copy to host memory (the loop waits)": copy,
        "write, flush, rename (the thread)": written,
        "what the loop waited in all for one checkpoint": waits,
        "one step alone": hundred / 100,
        "one step while a checkpoint is being written": beside,
        "read and verify": read,
    }
    for title, value in rows.items():
        print(f"{title:48s} {1000 * value:9.0f} ms  {100 * value / hundred:7.2f} % of 100 steps")


if __name__ == "__main__":
    main()
