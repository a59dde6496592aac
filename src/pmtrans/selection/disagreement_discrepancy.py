"""A lower end of target accuracy: a critic that agrees with the model on the source and contradicts it on the target.

Rosenfeld and Garg, (Almost) Provable Error Bounds Under Distribution Shift via Disagreement Discrepancy, NeurIPS 2023.
If no critic of a class contradicts the model h on the target by more than this one does (and agrees with it on the
source as well), the error on the target is at most, with probability 1 - delta (Theorem 3.6),

    error_S(h) + (disagreement_T - disagreement_S) + sqrt((n_S + 4 n_T) log(1 / delta) / (2 n_S n_T)).

The critic is linear in the logits of h, as in the paper's experiments. It is fitted on a random half of each
domain and its disagreement is measured on the rest: a critic that learns images by heart proves nothing. With fewer
than ``LEAST`` held-out images it learns nothing else, does not generalise on the source either, and the bound is void.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from pmtrans.selection.evidence import MANY_CLASSES, Evidence

LEAST = 200  # held-out source images
MOST = 2_000  # images of each domain that the critic is fitted on
ITERATIONS = 50


def accuracy_floor(evidence: Evidence, delta: float) -> float:
    """The accuracy above which the target's lies with probability 1 - delta, if the critic is as good as any."""
    source, target = len(evidence.source_labels_N), len(evidence.target_logits_MK)
    if source < LEAST or target < 2 or evidence.classes > MANY_CLASSES:  # the critic is a matrix of K x K
        return 0.0
    error = (evidence.source_predictions_N() != evidence.source_labels_N).double().mean().item()
    n_s, n_t = source // 2, target // 2  # on which the disagreement is measured
    chance = math.sqrt((n_s + 4 * n_t) * math.log(1 / delta) / (2 * n_s * n_t))
    return max(0.0, 1.0 - error - discrepancy(evidence.source_logits_NK, evidence.target_logits_MK) - chance)


def discrepancy(source_NK: Tensor, target_MK: Tensor) -> float:
    """Disagreement of model and critic on the target minus that on the source, each on images it was not fitted on.

    At least 0: the model itself is a critic, and never contradicts itself.
    """
    scale = source_NK.double().std().clamp(min=1e-6)
    fitted, measured = [], []
    for logits in (source_NK, target_MK):
        order = torch.randperm(len(logits), generator=torch.Generator().manual_seed(0))
        shuffled = logits.double()[order] / scale
        fitted.append(shuffled[: (len(logits) + 1) // 2][:MOST])
        measured.append(shuffled[(len(logits) + 1) // 2 :])
    critic_KK = _fit(*fitted)
    on_source, on_target = (
        ((logits @ critic_KK).argmax(1) != logits.argmax(1)).double().mean().item() for logits in measured
    )
    return max(0.0, on_target - on_source)


def _fit(source_NK: Tensor, target_MK: Tensor) -> Tensor:
    """Cross-entropy to the model on the source, the disagreement loss below on the target, from the model itself."""
    source_N, target_M = source_NK.argmax(1), target_MK.argmax(1)
    critic_KK = torch.eye(source_NK.shape[1], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([critic_KK], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        optimiser.zero_grad()
        loss = cross_entropy(source_NK @ critic_KK, source_N) + disagreement_loss(target_MK @ critic_KK, target_M)
        loss = loss + 1e-3 * critic_KK.square().sum()  # bounded: separable images ask for infinite weights
        loss.backward()
        return loss

    optimiser.step(objective)
    return critic_KK.detach()


def disagreement_loss(logits_MK: Tensor, predicted_M: Tensor) -> Tensor:
    """mean log(1 + exp(z_y - mean of the others)) / log 2: small where the critic says anything but y (Eq. 5)."""
    own_M = logits_MK.gather(1, predicted_M[:, None]).squeeze(1)
    others_M = (logits_MK.sum(1) - own_M) / (logits_MK.shape[1] - 1)
    pair_M2 = torch.stack([others_M, own_M], dim=1)
    return -log_softmax(pair_M2, dim=1)[:, 0].mean() / math.log(2)
