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
from pmtrans.methods.method import CheckStop, ClassesOfTarget, SourcePass, TargetPass

STEPS = 100
LEARNING_RATE = 1e-3
INFORMATION = 0.1  # its weight: at 1 the classifier becomes certain, and its errors stay
ROWS = 20_000  # of each domain at most, evenly taken: a linear classifier learns nothing more from millions
LOGITS = 7_000_000  # of each domain in a step: with more than 350 classes, each step sees another part of many rows


def align_head(
    head: nn.Module,
    source: SourcePass,
    target: TargetPass,
    label_smoothing: float,
    classes: ClassesOfTarget | None = None,
    check_stop: CheckStop = lambda: None,
) -> None:
    """Descend on CE(source) + 0.1 L_IM(target): before the game, where no label of the target can be relied on."""
    features_t, count = _thinned(target.features_MF.float()), target.logits_MK.shape[1]

    def on_target(moved: nn.Module, step: int) -> Tensor:
        logits = moved(_portion(features_t, count, step))
        if classes is None:
            return INFORMATION * information_maximisation_loss(logits)
        return INFORMATION * weighted_information_loss(logits, torch.ones_like(logits[:, 0]), classes.present_K)

    _fit(head, source, on_target, label_smoothing, classes, check_stop)


def refit_head(
    head: nn.Module,
    source: SourcePass,
    target: TargetPass,
    labels_M: Tensor,
    label_smoothing: float,
    classes: ClassesOfTarget | None = None,
) -> None:
    """Descend on CE(source) + CE(target, its pseudo labels): after the game, where they are right most often."""
    features_t, labels_t = _thinned(target.features_MF.float()), _thinned(labels_M)
    count = target.logits_MK.shape[1]

    def on_target(moved: nn.Module, step: int) -> Tensor:
        features, labels = (_portion(rows, count, step) for rows in (features_t, labels_t))
        return classification_loss(moved(features), labels, label_smoothing)

    _fit(head, source, on_target, label_smoothing, classes)


@torch.enable_grad()
def _fit(
    head: nn.Module,
    source: SourcePass,
    on_target: Callable[[nn.Module, int], Tensor],
    label_smoothing: float,
    classes: ClassesOfTarget | None,
    check_stop: CheckStop = lambda: None,
) -> None:
    """Over the head alone, all rows at once, or as many of them as ``LOGITS`` allows.

    A copy is trained: nothing that watches the gradients of the head (DDP) notices.
    """
    features_s, labels_s = (_thinned(rows) for rows in (source.features_NF.float(), source.labels_N))
    count = source.logits_NK.shape[1]
    moved = copy.deepcopy(head).eval().requires_grad_()
    optimiser = torch.optim.AdamW(moved.parameters(), lr=LEARNING_RATE)
    with torch.autocast(features_s.device.type, enabled=False):
        for step in range(STEPS):
            check_stop()
            optimiser.zero_grad()
            features, labels = (_portion(rows, count, step) for rows in (features_s, labels_s))
            weights = None if classes is None else classes.source_weights(labels)
            classification = classification_loss(moved(features), labels, label_smoothing, weights)
            (classification + on_target(moved, step)).backward()
            optimiser.step()
    head.load_state_dict(moved.state_dict())


def _thinned(rows: Tensor) -> Tensor:
    return rows[:: max(1, -(-len(rows) // ROWS))]


def _portion(rows: Tensor, classes: int, step: int) -> Tensor:
    """Evenly spaced rows whose logits are at most ``LOGITS``, all if they fit; the next step takes the rows beside."""
    stride = -(-len(rows) // max(1, LOGITS // classes)) or 1
    return rows[step % stride :: stride]


def with_known_rows(source: SourcePass, target: TargetPass, pinned_M: Tensor | None) -> SourcePass:
    """The labelled target images once more, as often as makes them weigh as much as the source."""
    if pinned_M is None:
        return source
    known = known_rows(pinned_M, len(source.labels_N))
    return SourcePass(
        torch.cat([source.features_NF, target.features_MF[known]]),
        torch.cat([source.logits_NK, target.logits_MK[known]]),
        torch.cat([source.labels_N, pinned_M[known]]),
    )


def known_rows(pinned_M: Tensor, source_images: int) -> Tensor:
    """Which target images are labelled, each as often as makes them weigh as much as the source."""
    known = (pinned_M >= 0).nonzero().squeeze(1)
    return known.repeat(max(1, source_images // max(1, len(known))))
