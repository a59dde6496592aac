"""Seconds that each validator takes, on random evidence of two sizes.

    python benchmarks/selection_time.py

Sizes: a large Office-Home domain (65 classes) and the VisDA target (12 classes), features of width 384.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch

from pmtrans.selection.estimate import estimate_accuracy
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.signals import read_pair
from pmtrans.selection.validators import VALIDATORS


def random_evidence(targets: int, classes: int, width: int, noise: float, sources: int = 2_000) -> Evidence:
    """Gaussian classes with a shifted target; classified by the class centres, with some errors."""
    generator = torch.Generator().manual_seed(0)
    centres_KD = torch.randn(classes, width, generator=generator)

    def domain(images: int, displacement: float) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(classes, (images,), generator=generator)
        features = centres_KD[labels] + noise * torch.randn(images, width, generator=generator)
        return features + displacement * torch.randn(width, generator=generator), labels

    (source, labels), (train, _), (target, _) = domain(sources, 0), domain(sources, 0), domain(targets, 1.0)
    weights = 4.0 * centres_KD.T / width
    return Evidence(source, source @ weights, labels, target, target @ weights, train)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=384)
    width = parser.parse_args().width
    for targets, classes in ((5_000, 65), (55_000, 12)):
        baseline = random_evidence(targets, classes, width, noise=4.0)
        adapted = random_evidence(targets, classes, width, noise=3.0)
        print(f"{targets} target images, {classes} classes, width {width}, {torch.get_num_threads()} thread(s)")
        total = 0.0
        timed: list[tuple[str, Callable[[Evidence], object]]] = [
            *((name, validator.function) for name, validator in VALIDATORS.items()),
            ("estimate", partial(estimate_accuracy, baseline=baseline)),
            ("arbitration", partial(read_pair, baseline)),
        ]
        for name, function in timed:
            start = time.perf_counter()
            function(adapted)
            seconds = time.perf_counter() - start
            total += seconds
            print(f"  {name:26s}{seconds:8.2f} s")
        print(f"  {'all':26s}{total:8.2f} s")


if __name__ == "__main__":
    main()
