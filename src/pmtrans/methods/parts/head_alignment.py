"""Bring a classifier to the target while the features stand still: seconds of work on features computed once.

``classes`` says which of them the target has, where it is not all. Shapes: N source images, M target images, F feature
width.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pmtrans.losses import classification_loss
from pmtrans.losses.information_maximisation import information_maximisation_loss, weighted_information_loss
from pmtrans.methods.method import ClassesOfTarget, SourcePass, TargetPass

STEPS = 100
LEARNING_RATE = 1e-3
INFORMATION = 0.1  # its weight: at 1 the classifier becomes certain, and its errors stay
ROWS = 20_000  # of each domain at most, evenly taken: a linear classifier learns nothing more from millions


def align_head(
    head: nn.Module,
    source: SourcePass,
    target: TargetPass,
    label_smoothing: float,
    classes: ClassesOfTarget | None = None,
) -> None:
    """Descend on CE(source) + 0.1 L_IM(target): before the game, where no label of the target can be relied on."""
    features_t = _thinned(target.features_MF.float())

    def on_target(moved: nn.Module) -> Tensor:
        logits = moved(features_t)
        if classes is None:
            return INFORMATION * information_maximisation_loss(logits)
        return INFORMATION * weighted_information_loss(logits, torch.ones_like(logits[:, 0]), classes.present_K)

    _fit(head, source, on_target, label_smoothing, classes)


def refit_head(
    head: nn.Module,
    source: SourcePass,
    target: TargetPass,
    labels_M: Tensor,
    label_smoothing: float,
    classes: ClassesOfTarget | None = None,
) -> None:
    """Descend on CE(source) + CE(target, its pseudo labels): after the game, where they are right most often."""
    features_t, labels = _thinned(target.features_MF.float()), _thinned(labels_M)

    def on_target(moved: nn.Module) -> Tensor:
        return classification_loss(moved(features_t), labels, label_smoothing)

    _fit(head, source, on_target, label_smoothing, classes)


@torch.enable_grad()
def _fit(
    head: nn.Module,
    source: SourcePass,
    on_target: Callable[[nn.Module], Tensor],
    label_smoothing: float,
    classes: ClassesOfTarget | None,
) -> None:
    """Over the head alone, all rows at once.

    A copy is trained: nothing that watches the gradients of the head (DDP) notices.
    """
    features_s, labels = (_thinned(rows) for rows in (source.features_NF.float(), source.labels_N))
    weights = None if classes is None else classes.source_weights(labels)
    moved = copy.deepcopy(head).eval().requires_grad_()
    optimiser = torch.optim.AdamW(moved.parameters(), lr=LEARNING_RATE)
    with torch.autocast(features_s.device.type, enabled=False):
        for _ in range(STEPS):
            optimiser.zero_grad()
            classification = classification_loss(moved(features_s), labels, label_smoothing, weights)
            (classification + on_target(moved)).backward()
            optimiser.step()
    head.load_state_dict(moved.state_dict())


def _thinned(rows: Tensor) -> Tensor:
    return rows[:: max(1, -(-len(rows) // ROWS))]


def with_known_rows(source: SourcePass, target: TargetPass, pinned_M: Tensor | None) -> SourcePass:
    """The labelled target images once more, as often as makes them weigh as much as the source."""
    if pinned_M is None:
        return source
    known = (pinned_M >= 0).nonzero().squeeze(1)
    times = max(1, len(source.labels_N) // len(known))
    known = known.repeat(times)
    return SourcePass(
        torch.cat([source.features_NF, target.features_MF[known]]),
        torch.cat([source.logits_NK, target.logits_MK[known]]),
        torch.cat([source.labels_N, pinned_M[known]]),
    )
