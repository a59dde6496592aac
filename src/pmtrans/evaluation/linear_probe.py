"""A regularised classifier on frozen features: what a user could have in seconds, and the first head of a training.

min over w of CE(head_w(features), labels) + strength / 2 |w|^2 (biases are not penalised), by L-BFGS, for
several strengths. Of these the strongest is taken whose accuracy on the held-out source is within one
standard error of the best (Breiman et al., Classification and Regression Trees, 1984): a few held-out images cannot
tell two strengths apart, and the stronger one trusts the source less. Where fewer than ``FEW_HELD`` images are held out
of a small source, the strength is chosen on all other images instead, each judged by a classifier fitted without its
fold (``folds.py``).

With thousands of classes L-BFGS over all logits would take hours: beyond ``MOST_LOGITS`` the weakest strength is fitted
by Adam, each step on another part of the images. The gradient of a class falls with their number, the penalty does not.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pmtrans.evaluation.folds import FOLDS, block_folds
from pmtrans.machine import fallback_device

STRENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
WITHOUT_HOLDOUT = 0.1
MOST = 50_000  # source images: more of them move the classifier less than the domains differ
MOST_LOGITS = 20_000_000  # of all images: above DomainNet's 345 classes
ITERATIONS = 100  # of L-BFGS at each strength
STEPS, STEP_LOGITS, LEARNING_RATE = 300, 7_000_000, 0.01  # of Adam
CHUNK = 1024  # held-out images
FEW_HELD = 50  # a dozen images misjudge an accuracy by 10 to 30 points
LEAST, SMALL = 50, 1000  # images of a source that is cut into folds: fewer fill no folds, more leave enough to hold out


@dataclass(frozen=True)
class LinearProbe:
    """A fitted head, the strength that was chosen, and the accuracy on the held-out source (None: there is none).

    ``folds_accuracy``: of the source by folds, where the strength was chosen by it.
    """

    head: nn.Module
    strength: float
    holdout_accuracy: float | None
    folds_accuracy: float | None = None


def fit_probe(
    head: nn.Module, features_NF: Tensor, labels_N: Tensor, holdout_MF: Tensor, holdout_labels_M: Tensor, seed: int
) -> LinearProbe:
    """Fit ``head`` on the features of the source; a large one without held-out images by ``WITHOUT_HOLDOUT``."""
    features_NF, labels_N = _sample(features_NF, labels_N, seed)
    device, place = features_NF.device, fallback_device(features_NF.device)
    features_NF, holdout_MF = (one.to(place, torch.float64) for one in (features_NF, holdout_MF))
    labels_N, holdout_labels_M = labels_N.to(place), holdout_labels_M.to(place)
    head = copy.deepcopy(head).to(place, torch.float64).eval()
    classes = int(labels_N.max()) + 1
    if classes * len(labels_N) > MOST_LOGITS:
        fitted = _fit_by_parts(head.float(), features_NF.float(), labels_N, STRENGTHS[-1], classes)
        accuracy = _accuracy(fitted, holdout_MF.float(), holdout_labels_M)
        return LinearProbe(fitted.to(device), STRENGTHS[-1], accuracy)
    if len(holdout_labels_M) < FEW_HELD and LEAST <= len(labels_N) <= SMALL:
        strength, right = _strength_by_folds(head, features_NF, labels_N)
        fitted = _fit(head, features_NF, labels_N, strength)
        accuracy = _accuracy(fitted, holdout_MF, holdout_labels_M)
        return LinearProbe(fitted.to(device, torch.float32), strength, accuracy, right)
    if not len(holdout_labels_M):
        fitted = _fit(head, features_NF, labels_N, WITHOUT_HOLDOUT)
        return LinearProbe(fitted.to(device, torch.float32), WITHOUT_HOLDOUT, None)
    path: list[LinearProbe] = []
    for strength in STRENGTHS:
        fitted = _fit(copy.deepcopy(head), features_NF, labels_N, strength)  # an MLP's weights vanish if it is strong
        path.append(LinearProbe(fitted, strength, _accuracy(fitted, holdout_MF, holdout_labels_M)))
    chosen = path[one_standard_error([probe.holdout_accuracy or 0.0 for probe in path], len(holdout_labels_M))]
    return LinearProbe(chosen.head.to(device, torch.float32), chosen.strength, chosen.holdout_accuracy)


def _strength_by_folds(head: nn.Module, features_NF: Tensor, labels_N: Tensor) -> tuple[float, float]:
    """The strength, and its accuracy on images that the classifier was fitted without."""
    fold_N = block_folds(features_NF, labels_N).to(labels_N.device)
    accuracies = []
    for strength in STRENGTHS:
        right = 0.0
        for fold in range(FOLDS):
            kept, left_out = fold_N != fold, fold_N == fold
            fitted = _fit(copy.deepcopy(head), features_NF[kept], labels_N[kept], strength)
            right += (_accuracy(fitted, features_NF[left_out], labels_N[left_out]) or 0.0) * int(left_out.sum())
        accuracies.append(right / len(labels_N))
    chosen = one_standard_error(accuracies, len(labels_N))
    return STRENGTHS[chosen], accuracies[chosen]


def one_standard_error(accuracies: list[float], images: int) -> int:
    """The first place whose accuracy is within one standard error of the best."""
    best = max(accuracies)
    error = math.sqrt(best * (1 - best) / images)
    return next(place for place, accuracy in enumerate(accuracies) if accuracy >= best - error)


def _sample(features_NF: Tensor, labels_N: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    if len(labels_N) <= MOST:
        return features_NF, labels_N
    drawn = torch.randperm(len(labels_N), generator=torch.Generator().manual_seed(seed))[:MOST].sort().values
    drawn = drawn.to(features_NF.device)
    return features_NF[drawn], labels_N[drawn]


@torch.no_grad()
def _accuracy(head: nn.Module, features_MF: Tensor, labels_M: Tensor) -> float | None:
    """On held-out images; None where there are none."""
    if not len(labels_M):
        return None
    predicted = torch.cat([head(rows).argmax(1) for rows in features_MF.split(CHUNK)])
    return (predicted == labels_M).double().mean().item()


def _objective(head: nn.Module, features_NF: Tensor, labels_N: Tensor, strength: float) -> Tensor:
    """With the weights of the layers, not of their parameters: the length of a direction (weight_norm) is free."""
    layers = [layer for layer in head.modules() if isinstance(layer, nn.Linear)]
    penalty = sum((layer.weight.square().sum() for layer in layers), start=features_NF.new_zeros(()))
    return cross_entropy(head(features_NF), labels_N) + strength / 2 * penalty


def _fit_by_parts(head: nn.Module, features_NF: Tensor, labels_N: Tensor, strength: float, classes: int) -> nn.Module:
    """Adam, its rate falling to 0; a step sees evenly spaced images, the next one those beside them."""
    optimiser = torch.optim.Adam(head.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, STEPS)
    stride = max(1, math.ceil(len(labels_N) * classes / STEP_LOGITS))
    for step in range(STEPS):
        optimiser.zero_grad()
        part = slice(step % stride, None, stride)
        _objective(head, features_NF[part], labels_N[part], strength).backward()
        optimiser.step()
        schedule.step()
    return head


def _fit(head: nn.Module, features_NF: Tensor, labels_N: Tensor, strength: float) -> nn.Module:
    optimiser = torch.optim.LBFGS(
        head.parameters(),
        max_iter=ITERATIONS,
        tolerance_grad=1e-6,
        tolerance_change=1e-9,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        optimiser.zero_grad()
        loss = _objective(head, features_NF, labels_N, strength)
        loss.backward()
        return loss

    optimiser.step(objective)
    return head
