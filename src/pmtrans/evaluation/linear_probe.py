"""A regularised classifier on frozen features: what a user could have in seconds, and the first head of a training.

min over w of CE(head_w(features), labels) + strength / 2 |w|^2 (biases are not penalised), by L-BFGS, for
several strengths. Of these the strongest is taken whose accuracy on the held-out source is within one
standard error of the best (Breiman et al., Classification and Regression Trees, 1984): a few held-out images cannot
tell two strengths apart, and the stronger one trusts the source less.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pmtrans.machine import fallback_device

STRENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
WITHOUT_HOLDOUT = 0.1
MOST = 50_000  # source images: more of them move the classifier less than the domains differ
ITERATIONS = 100  # of L-BFGS at each strength


@dataclass(frozen=True)
class LinearProbe:
    """A fitted head, the strength that was chosen, and the accuracy on the held-out source (None: there is none)."""

    head: nn.Module
    strength: float
    holdout_accuracy: float | None


def fit_probe(
    head: nn.Module, features_NF: Tensor, labels_N: Tensor, holdout_MF: Tensor, holdout_labels_M: Tensor, seed: int
) -> LinearProbe:
    """Fit ``head`` on the features of the source; without held-out images the strength is ``WITHOUT_HOLDOUT``."""
    features_NF, labels_N = _sample(features_NF, labels_N, seed)
    device, place = features_NF.device, fallback_device(features_NF.device)
    features_NF, holdout_MF = (one.to(place, torch.float64) for one in (features_NF, holdout_MF))
    labels_N, holdout_labels_M = labels_N.to(place), holdout_labels_M.to(place)
    head = copy.deepcopy(head).to(place, torch.float64).eval()
    if not len(holdout_labels_M):
        fitted = _fit(head, features_NF, labels_N, WITHOUT_HOLDOUT)
        return LinearProbe(fitted.to(device, torch.float32), WITHOUT_HOLDOUT, None)
    path: list[LinearProbe] = []
    for strength in STRENGTHS:
        fitted = _fit(copy.deepcopy(head), features_NF, labels_N, strength)  # an MLP's weights vanish if it is strong
        with torch.no_grad():
            right = fitted(holdout_MF).argmax(1) == holdout_labels_M
        path.append(LinearProbe(fitted, strength, right.double().mean().item()))
    chosen = path[one_standard_error([probe.holdout_accuracy or 0.0 for probe in path], len(holdout_labels_M))]
    return LinearProbe(chosen.head.to(device, torch.float32), chosen.strength, chosen.holdout_accuracy)


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


def _fit(head: nn.Module, features_NF: Tensor, labels_N: Tensor, strength: float) -> nn.Module:
    layers = [layer for layer in head.modules() if isinstance(layer, nn.Linear)]
    optimiser = torch.optim.LBFGS(
        head.parameters(),
        max_iter=ITERATIONS,
        tolerance_grad=1e-6,
        tolerance_change=1e-9,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        optimiser.zero_grad()
        # of the layers, not of their parameters: the length of a direction (weight_norm) is free
        penalty = sum((layer.weight.square().sum() for layer in layers), start=features_NF.new_zeros(()))
        loss = cross_entropy(head(features_NF), labels_N) + strength / 2 * penalty
        loss.backward()
        return loss

    optimiser.step(objective)
    return head
