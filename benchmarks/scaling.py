"""Images per second of the training step with 1, 2, ... processes of one thread each (or one GPU each), the same batch.

python benchmarks/scaling.py --processes 1,2 --backbone deit_tiny_patch16_224 --batch 16 --image-size 224

Efficiency is (images/s of W processes) / (W x images/s of one). Each number of processes is measured several times in
turn, so that a machine that is busy for a while is so for all; the best of the turns counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from pmtrans.processes.environment import FOLDER, private_folder


def worker(given: argparse.Namespace) -> None:
    """One process of the group: a few steps of the loop's own step, timed."""
    import torch

    from pmtrans.backbones.create import create_backbone
    from pmtrans.config import TrainConfig
    from pmtrans.data.batch import Batch
    from pmtrans.data.domain import Domain
    from pmtrans.methods import METHODS, Sizes
    from pmtrans.methods.method import Moment
    from pmtrans.model import Model
    from pmtrans.processes.group import joined
    from pmtrans.processes.rows import divided
    from pmtrans.training.accelerator import create_accelerator, prepare
    from pmtrans.training.failures import FiniteGuard
    from pmtrans.training.players import create_optimiser
    from pmtrans.training.step import Step

    torch.set_num_threads(1)
    with joined() as group:
        torch.manual_seed(0)
        accelerator = create_accelerator("auto")
        model = Model(create_backbone(given.backbone, "none", given.image_size), 31)
        entry = METHODS["pmtrans"]
        method = entry.create(model, entry.options(), Sizes(31, 500, 500)).to(accelerator.device).train()
        module = prepare(accelerator, method, given.sharded and group.count > 1)
        config = TrainConfig(learning_rate=1e-5)
        guard = FiniteGuard(Path(), Domain(Path(), ()), Domain(Path(), ()), group.is_main)
        step = Step(method, module, create_optimiser(method, config), accelerator, config, guard)
        share, size = given.batch // group.count, given.image_size
        images = torch.randn(2, share, 3, size, size)
        index = torch.arange(share)
        own = Batch(images[0], index % 31, index, images[1], index).to(accelerator.device)
        seconds = []
        for number in range(given.steps + 2):
            begin = time.perf_counter()
            batch = group.whole(own)
            with divided(group.rank, group.count, given.batch):
                step([batch], Moment(number, 100, 10))
            if accelerator.device.type == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
        if group.is_main:
            print(json.dumps(sorted(seconds[2:])[given.steps // 2]))


def measure(count: int) -> float:
    """Seconds of a step, the median, with ``count`` processes."""
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    command = [sys.executable, __file__, *sys.argv[1:], "--worker"]
    processes = []
    with private_folder() as meeting:
        group = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), FOLDER: str(meeting)} if count > 1 else {}
        for rank in range(count):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank), **group} if count > 1 else {}
            processes.append(subprocess.Popen(command, env={**shared, **place}, stdout=subprocess.PIPE, text=True))
        said = [process.communicate()[0] for process in processes]
    return float(said[0].split()[-1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--backbone", default="deit_tiny_patch16_224")
    parser.add_argument("--batch", type=int, default=16, help="pairs of all processes together")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--sharded", action="store_true", help="several processes divide the blocks (FSDP)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given)
    else:
        counts = [int(count) for count in given.processes.split(",")]
        best = dict.fromkeys(counts, float("inf"))
        for _ in range(given.turns):
            for count in counts:
                best[count] = min(best[count], measure(count))
        for count in counts:
            efficiency = best[counts[0]] * counts[0] / (count * best[count])
            result = {"processes": count, "seconds_step": best[count], "pairs_per_second": given.batch / best[count]}
            print(json.dumps({**result, "efficiency": round(efficiency, 3)}))
