"""Bring a classifier to the target before the features move: seconds of work on features that are computed once."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from pmtrans.losses import classification_loss
from pmtrans.losses.information_maximisation import information_maximisation_loss, weighted_information_loss
from pmtrans.methods.method import ClassesOfTarget, SourcePass, TargetPass

STEPS = 100
LEARNING_RATE = 1e-3
INFORMATION = 0.1  # its weight: at 1 the classifier becomes certain, and its errors stay
ROWS = 20_000  # of each domain at most, evenly taken: a linear classifier learns nothing more from millions


@torch.enable_grad()
def align_head(
    head: nn.Module,
    source: SourcePass,
    target: TargetPass,
    label_smoothing: float,
    classes: ClassesOfTarget | None = None,
) -> None:
    """Descend on CE(source) + 0.1 L_IM(target) over the head alone, all rows at once; the features stand still.

    A copy is trained: nothing that watches the gradients of the head (DDP) notices. ``classes``: which of them the
    target has, where it is not all.
    """
    features_s, labels = (_thinned(rows) for rows in (source.features_NF.float(), source.labels_N))
    weights = None if classes is None else classes.source_weights(labels)
    features_t = _thinned(target.features_MF.float())
    moved = copy.deepcopy(head).eval().requires_grad_()
    optimiser = torch.optim.AdamW(moved.parameters(), lr=LEARNING_RATE)
    with torch.autocast(features_t.device.type, enabled=False):
        for _ in range(STEPS):
            optimiser.zero_grad()
            classification = classification_loss(moved(features_s), labels, label_smoothing, weights)
            logits_t = moved(features_t)
            information = (
                information_maximisation_loss(logits_t)
                if classes is None
                else weighted_information_loss(logits_t, torch.ones_like(logits_t[:, 0]), classes.present_K)
            )
            (classification + INFORMATION * information).backward()
            optimiser.step()
    head.load_state_dict(moved.state_dict())


def _thinned(rows: Tensor) -> Tensor:
    return rows[:: max(1, -(-len(rows) // ROWS))]
