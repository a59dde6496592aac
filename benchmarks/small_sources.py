"""What the folds of a small source are worth: strengths of the probe chosen by them, and by a few held-out images.

    python benchmarks/small_sources.py --data office31 --weights deit_tiny_patch16_224.safetensors

Of each source of Office-31 a few images a class are drawn, of which a tenth is held out; all other images of that
domain tell how accurate the probe truly is on its source, and another domain how accurate it is there. Labels of the
target are read to measure.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import nn
from trust_adaptations import OFFICE_31, Features, extract

from pmtrans.evaluation import linear_probe
from pmtrans.evaluation.linear_probe import LinearProbe, fit_probe

PIXELS = 128
IMAGES = (3, 5, 8)  # of each class
HOLDOUT = 10  # one image of so many


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("runs/trust"))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    domains = {
        name: extract(given.data / folder, "deit_tiny_patch16_224", given.weights, PIXELS, given.cache)
        for name, folder in OFFICE_31.items()
    }
    print("| images a class | held out | misjudged by the held-out images | by folds | target, by them | by folds |")
    print("|---|---|---|---|---|---|")
    for images in IMAGES:
        rows = [
            compare(domains[source], domains[target], images, seed)
            for source, target in itertools.permutations(domains, 2)
            for seed in range(given.seeds)
        ]
        held, *figures = (fmean(column) for column in zip(*rows, strict=True))
        print(f"| {images} | {held:.0f} | " + " | ".join(f"{100 * value:.1f}" for value in figures) + " |")


def compare(source: Features, target: Features, images: int, seed: int) -> tuple[float, ...]:
    """Held-out images; errors of the two accuracies on the source; accuracies on the target of the two probes."""
    random = np.random.default_rng(seed)
    labels = source.labels_M.numpy()
    drawn = [np.sort(random.permutation(np.flatnonzero(labels == label))[:images]) for label in np.unique(labels)]
    places = torch.from_numpy(np.concatenate(drawn))
    is_held = torch.zeros(len(places), dtype=torch.bool)
    is_held[torch.from_numpy(random.permutation(len(places))[: len(places) // HOLDOUT])] = True
    train, held = places[~is_held], places[is_held]
    others = torch.ones(len(labels), dtype=torch.bool).index_fill_(0, places, value=False)
    scale = source.features_MD.std()

    def accuracy(probe: LinearProbe, domain: Features, rows: torch.Tensor | slice) -> float:
        with torch.no_grad():
            predicted = probe.head(domain.features_MD[rows] / scale).argmax(1)
        return float((predicted == domain.labels_M[rows]).double().mean())

    probes = []
    for few in (0, linear_probe.FEW_HELD):
        linear_probe.FEW_HELD, usual = few, linear_probe.FEW_HELD
        head = nn.Linear(source.features_MD.shape[1], len(source.classes))
        parts = [(source.features_MD[rows] / scale, source.labels_M[rows]) for rows in (train, held)]
        probes.append(fit_probe(head, *parts[0], *parts[1], seed))
        linear_probe.FEW_HELD = usual
    by_held, by_folds = probes
    assert by_held.holdout_accuracy is not None
    assert by_folds.folds_accuracy is not None
    return (
        float(is_held.sum()),
        abs(by_held.holdout_accuracy - accuracy(by_held, source, others)),
        abs(by_folds.folds_accuracy - accuracy(by_folds, source, others)),
        accuracy(by_held, target, slice(None)),
        accuracy(by_folds, target, slice(None)),
    )


if __name__ == "__main__":
    main()
