"""Bring a classifier to the target before the features move: seconds of work on features that are computed once."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from pmtrans.losses import classification_loss
from pmtrans.losses.information_maximisation import information_maximisation_loss
from pmtrans.methods.method import SourcePass, TargetPass

STEPS = 100
LEARNING_RATE = 1e-3
INFORMATION = 0.1  # its weight: at 1 the classifier becomes certain, and its errors stay
ROWS = 20_000  # of each domain at most, evenly taken: a linear classifier learns nothing more from millions


@torch.enable_grad()
def align_head(head: nn.Module, source: SourcePass, target: TargetPass, label_smoothing: float) -> None:
    """Descend on CE(source) + 0.1 L_IM(target) over the head alone, all rows at once; the features stand still.

    A copy is trained: nothing that watches the gradients of the head (DDP) notices.
    """
    features_s, labels = (_thinned(rows) for rows in (source.features_NF.float(), source.labels_N))
    features_t = _thinned(target.features_MF.float())
    moved = copy.deepcopy(head).eval().requires_grad_()
    optimiser = torch.optim.AdamW(moved.parameters(), lr=LEARNING_RATE)
    with torch.autocast(features_t.device.type, enabled=False):
        for _ in range(STEPS):
            optimiser.zero_grad()
            classification = classification_loss(moved(features_s), labels, label_smoothing)
            (classification + INFORMATION * information_maximisation_loss(moved(features_t))).backward()
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
