"""Bring a classifier to the target while the features stand still: seconds of work on features computed once.

Shapes: N source images, M target images, F feature width.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pmtrans.losses import classification_loss
from pmtrans.losses.information_maximisation import information_maximisation_loss
from pmtrans.methods.method import SourcePass, TargetPass

STEPS = 100
LEARNING_RATE = 1e-3
INFORMATION = 0.1  # its weight: at 1 the classifier becomes certain, and its errors stay
ROWS = 20_000  # of each domain at most, evenly taken: a linear classifier learns nothing more from millions


def align_head(head: nn.Module, source: SourcePass, target: TargetPass, label_smoothing: float) -> None:
    """Descend on CE(source) + 0.1 L_IM(target): before the game, where no label of the target can be relied on."""
    features_t = _thinned(target.features_MF.float())

    def on_target(moved: nn.Module) -> Tensor:
        return INFORMATION * information_maximisation_loss(moved(features_t))

    _fit(head, source, on_target, label_smoothing)


def refit_head(
    head: nn.Module, source: SourcePass, target: TargetPass, labels_M: Tensor, label_smoothing: float
) -> None:
    """Descend on CE(source) + CE(target, its pseudo labels): after the game, where they are right most often."""
    features_t, labels = _thinned(target.features_MF.float()), _thinned(labels_M)

    def on_target(moved: nn.Module) -> Tensor:
        return classification_loss(moved(features_t), labels, label_smoothing)

    _fit(head, source, on_target, label_smoothing)


@torch.enable_grad()
def _fit(head: nn.Module, source: SourcePass, on_target: Callable[[nn.Module], Tensor], label_smoothing: float) -> None:
    """Over the head alone, all rows at once.

    A copy is trained: nothing that watches the gradients of the head (DDP) notices.
    """
    features_s, labels = (_thinned(rows) for rows in (source.features_NF.float(), source.labels_N))
    moved = copy.deepcopy(head).eval().requires_grad_()
    optimiser = torch.optim.AdamW(moved.parameters(), lr=LEARNING_RATE)
    with torch.autocast(features_s.device.type, enabled=False):
        for _ in range(STEPS):
            optimiser.zero_grad()
            classification = classification_loss(moved(features_s), labels, label_smoothing)
            (classification + on_target(moved)).backward()
            optimiser.step()
    head.load_state_dict(moved.state_dict())


def _thinned(rows: Tensor) -> Tensor:
    return rows[:: max(1, -(-len(rows) // ROWS))]
