"""Cost of the game observer: its share of the training time if a benchmark is evaluated once per epoch.

python benchmarks/game.py --backbone deit_tiny_patch16_224 --batch 32 --image-size 128

Processor time, so that other programs do not count; one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from pmtrans.backbones.create import create_backbone
from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.methods import METHODS, Sizes
from pmtrans.methods.method import Moment
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.methods.pmtrans_game import PAIRS, GameObserver
from pmtrans.model import Model
from pmtrans.training.players import create_optimiser

IMAGES = {"Office-31, A2W": 2817, "Office-Home": 4357, "VisDA-2017": 152_397}  # of the longer domain


def random_batch(pairs: int, size: int) -> Batch:
    index = torch.arange(pairs)
    return Batch(torch.randn(pairs, 3, size, size), index % 31, index, torch.randn(pairs, 3, size, size), index)


def seconds(function: Callable[[], object], times: int) -> float:
    """The median processor time."""
    taken = []
    for _ in range(times + 1):
        begin = time.process_time()
        function()
        taken.append(time.process_time() - begin)
    return statistics.median(taken[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="deit_tiny_patch16_224")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--image-size", type=int, default=128)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    entry = METHODS["pmtrans"]
    model = Model(create_backbone(given.backbone, "none", given.image_size), 31)
    method = entry.create(model, entry.options(), Sizes(31, 99, 99)).train()
    assert isinstance(method, PMTrans)
    optimiser = create_optimiser(method, TrainConfig(learning_rate=1e-5))
    batch = random_batch(given.batch, given.image_size)

    def step() -> None:
        method(batch, Moment(50, 100, 10))["loss"].backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    observer = GameObserver(method, random_batch(PAIRS, given.image_size), 1e-5)
    of_step, of_game = seconds(step, 5), seconds(lambda: observer(None), 5)
    print(f"a step of {given.batch} pairs {of_step:.2f} s, the observer {of_game:.2f} s")
    for name, images in IMAGES.items():
        print(f"{name}: {100 * of_game / (images // given.batch * of_step):.2f} % of an epoch's steps")


if __name__ == "__main__":
    main()
