"""Pseudo labels by optimal transport: each class takes as many target images as its share says.

The images, each of mass 1 / M, are transported to class centres whose masses are the prior, at the cost -cos / T with
entropic regularisation (Cuturi, NIPS 2013). Centres and plan are computed in turn, as k-means computes centres and
labels. A uniform prior on a target of another balance moves whole clusters to the wrong class.

Shapes: M images, K classes, F feature width.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

TEMPERATURE = 0.05  # of the cosines
ROUNDS = 10  # of centres and plan
SCALINGS = 50  # of rows and columns of a plan
LEAST = 1e-6  # prior of a class: one that has none takes no image, and the logarithm is finite


@torch.no_grad()
def transport_plan(scores_MK: Tensor, prior_K: Tensor, scalings: int = SCALINGS) -> Tensor:
    """Rows_MK that sum to 1, with column sums M times the prior: exp(scores + a_m + b_k), by Sinkhorn's scaling."""
    log_prior_K = (prior_K.clamp_min(LEAST) / prior_K.clamp_min(LEAST).sum()).to(scores_MK.dtype).log()
    row_M1 = scores_MK.new_zeros(len(scores_MK), 1)
    column_K = log_prior_K
    for _ in range(scalings):
        column_K = log_prior_K - (scores_MK + row_M1).logsumexp(0)
        row_M1 = -math.log(len(scores_MK)) - (scores_MK + column_K).logsumexp(1, keepdim=True)
    return (scores_MK + row_M1 + column_K).softmax(1)


@torch.no_grad()
def transported_probabilities(features_MF: Tensor, logits_MK: Tensor, prior_K: Tensor) -> Tensor:
    """q_MK: from the predictions, centres of the classes, then the plan to them, ten times over."""
    unit_MF = F.normalize(features_MF.float(), dim=1)
    plan_MK = logits_MK.float().softmax(1)
    for _ in range(ROUNDS):
        centres_KF = F.normalize(plan_MK.T @ unit_MF, dim=1)
        plan_MK = transport_plan(unit_MF @ centres_KF.T / TEMPERATURE, prior_K)
    return plan_MK
