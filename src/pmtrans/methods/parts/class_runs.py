"""Orders of images in runs of one class, so that a batch holds a few classes with several images each."""

from __future__ import annotations

import torch
from torch import Tensor


class ClassPools:
    """For each class an endless shuffled supply of the images that carry it; -1 stands for all images."""

    def __init__(self, labels_N: Tensor, classes: int, generator: torch.Generator) -> None:
        shuffled_N = torch.randperm(len(labels_N), generator=generator)
        by_class_N = shuffled_N[labels_N[shuffled_N].argsort(stable=True)]
        sizes = torch.bincount(labels_N + 1, minlength=classes + 1).tolist()
        self._pools = dict(zip(range(-1, classes), by_class_N.split(sizes), strict=True))
        self._pools[-1] = shuffled_N
        self._used = dict.fromkeys(self._pools, 0)

    def has(self, label: int) -> bool:
        return len(self._pools[label]) > 0

    def draw(self, label: int, count: int) -> Tensor:
        """The next ``count`` images of a class, from the top again when it has fewer."""
        pool, start = self._pools[label], self._used[label]
        self._used[label] = start + count
        drawn: Tensor = pool[torch.arange(start, start + count) % len(pool)]
        return drawn


def class_sequence(pools: ClassPools, classes: int, runs: int, generator: torch.Generator) -> list[int]:
    """``runs`` class numbers: all classes that have images, shuffled, over and over."""
    present = torch.tensor([label for label in range(classes) if pools.has(label)])
    rounds = -(-runs // len(present))
    order = torch.cat([present[torch.randperm(len(present), generator=generator)] for _ in range(rounds)])
    sequence: list[int] = order[:runs].tolist()
    return sequence


def paired_runs(
    source_labels_N: Tensor,
    target_labels_M: Tensor,
    classes: int,
    run: int,
    pairs: int,
    generator: torch.Generator,
    batch: int | None = None,
) -> Tensor:
    """(source index, target index), P x 2: ``run`` pairs of one class on both sides, then of another.

    Source classes come equally often. Where the target has no image of a class (labels of -1 are no class), any
    target image stands in, so that no source class is starved. ``batch``: each batch of so many pairs begins another
    round through the classes, so that one that can hold every class does.
    """
    source = ClassPools(source_labels_N.cpu(), classes, generator)
    target = ClassPools(target_labels_M.cpu(), classes, generator)
    batch = batch or pairs
    chosen = []
    for _ in range(-(-pairs // batch)):
        runs = [
            torch.stack([source.draw(label, run), target.draw(label if target.has(label) else -1, run)], 1)
            for label in class_sequence(source, classes, -(-batch // run), generator)
        ]
        chosen.append(torch.cat(runs)[:batch])
    return torch.cat(chosen)[:pairs]
