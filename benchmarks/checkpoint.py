"""Cost of a checkpoint: how long the loop waits (copy to host memory) and the write to disk, relative to 100 steps.

    python benchmarks/checkpoint.py [--backbone vit_tiny_patch16_224] [--size 224] [--batch 8] [--steps 10]

Times are medians of wall-clock and processor time (on a shared machine, only the second can be compared);
the steps are real steps of PMTrans (forward of 3B, backward, AdamW), the checkpoints real ones, flushed to the disk.
``--steps`` are measured and scaled to 100.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from pmtrans.backbones.create import create_backbone
from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.methods import METHODS, Sizes
from pmtrans.methods.method import Moment
from pmtrans.model import Model
from pmtrans.training.checkpoint import Saver, load_snapshot, save_snapshot, take_snapshot
from pmtrans.training.players import create_optimiser


class Times(NamedTuple):
    """Wall-clock and processor seconds."""

    clock: float
    processor: float

    def scaled(self, factor: float) -> Times:
        return Times(self.clock * factor, self.processor * factor)


def measure(action: Callable[[], object], repeats: int) -> Times:
    """The median of several runs of ``action``."""
    clock, processor = [], []
    for _ in range(repeats):
        begin = time.perf_counter(), time.process_time()
        action()
        clock.append(time.perf_counter() - begin[0])
        processor.append(time.process_time() - begin[1])
    return Times(statistics.median(clock), statistics.median(processor))


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
    hundred = measure(step, arguments.steps).scaled(100)
    copy = measure(lambda: take_snapshot(1, method, optimiser, 0.0, []), 5)
    snapshot = take_snapshot(1, method, optimiser, 0.0, [])
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        written = measure(lambda: save_snapshot(folder, snapshot, keep=1), 3)
        megabytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
        read = measure(lambda: load_snapshot(folder / snapshot.name), 3)

        saver = Saver(folder / "threaded", keep=1)
        waits = measure(lambda: saver.save(take_snapshot(2, method, optimiser, 0.0, [])), 1)
        saver.wait()

    print(f"{arguments.backbone}, {arguments.size} px, {arguments.batch} pairs, {device.type}: {megabytes:.0f} MB")
    rows = {
        "100 steps": hundred,
        "copy to host memory (the loop waits)": copy,
        "write, flush, rename (the thread)": written,
        "copy and hand over to the thread (the loop)": waits,
        "read and verify": read,
    }
    print(f"{'':48s} {'clock':>12s} {'processor':>12s}   of 100 steps")
    for title, times in rows.items():
        share = f"{100 * times.clock / hundred.clock:6.2f} % / {100 * times.processor / hundred.processor:.2f} %"
        print(f"{title:48s} {1000 * times.clock:9.0f} ms {1000 * times.processor:9.0f} ms   {share}")


if __name__ == "__main__":
    main()
