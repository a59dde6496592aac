"""Between the weights before and after the source stage: how right is the target, and how certain, along the way?

python benchmarks/interpolation.py runs/a2w-0 runs/w2a-0 ...        (runs with a source stage; targets with labels)

A Markdown table per run: the share of the source-only weights, the accuracy of the classifier, of its k-means labels
and of its propagated labels, the agreement of classifier and clusters, the information on the target (the label-free
score), and the accuracy on the held-out source. Target labels are used here only.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path

import torch
from torch import Tensor

from pmtrans.data.domains import read_data
from pmtrans.evaluation.passes import run_pass
from pmtrans.losses.information_maximisation import information_maximisation_loss
from pmtrans.progress import Reporter
from pmtrans.pseudo_labels import cluster_agreement, kmeans_pseudo_labels, propagated_probabilities
from pmtrans.run.folder import RunFolder
from pmtrans.run.model_folder import load_model
from pmtrans.settings import validate
from pmtrans.texts import read_yaml
from pmtrans.training.start import average

HEADER = ("share", "classifier", "its k-means", "propagation", "agreement", "information", "held-out source")


def table(run: Path, shares: list[float], batch_size: int, workers: int) -> None:
    folder = RunFolder(run)
    data = read_data(validate(read_yaml(folder.config)), Reporter(quiet=True), decode=False)
    labelled = data.target.labelled
    if labelled is None:
        raise SystemExit(f"{run}: its target has no labels, so there is nothing to compare with.")
    before, after = (load_model(stage.model) for stage in (folder.probe, folder.baseline))
    label_of = dict(zip(labelled.paths, labelled.labels, strict=True))  # -1: an image without one counts as wrong
    truth_M = torch.tensor([label_of.get(path, -1) for path in data.target.domain.paths])
    truth_N = torch.tensor(data.holdout.labels)
    print(f"{run.name}\n\n| " + " | ".join(HEADER) + " |\n" + "|---" * len(HEADER) + "|")
    first, last = before.model.state_dict(), copy.deepcopy(after.model.state_dict())
    for share in shares:
        after.model.load_state_dict(average(first, last, share))
        target, source = (
            run_pass(after.model, paths, after.preprocessing, batch_size, workers)
            for paths in (data.target.domain.paths, data.holdout.images.paths)
        )
        features_MF, logits_MK = target.features_MF, target.logits_MK
        spread_M = propagated_probabilities(features_MF, logits_MK.softmax(1)).argmax(1)
        cells = (
            f"{share:g}",
            right(logits_MK.argmax(1), truth_M),
            right(kmeans_pseudo_labels(features_MF, logits_MK=logits_MK), truth_M),
            right(spread_M, truth_M),
            f"{float(cluster_agreement(features_MF, logits_MK)):.2f}",
            f"{-float(information_maximisation_loss(logits_MK)):.3f}",
            right(source.logits_MK.argmax(1), truth_N),
        )
        print("| " + " | ".join(cells) + " |", flush=True)
    print()


def right(predicted: Tensor, truth: Tensor) -> str:
    return f"{100 * (predicted == truth).double().mean().item():.1f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--shares", default="0,0.25,0.5,0.75,1,1.25", help="comma-separated shares of the second")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=0)
    given = parser.parse_args()
    for run in given.runs:
        table(run, [float(share) for share in given.shares.split(",")], given.batch_size, given.workers)
