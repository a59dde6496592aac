"""Bi-directional transport between class prototypes and target features (Tanwisuth et al., PCT, NeurIPS 2021)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def prototype_posterior(prototypes_KF: Tensor, features_BF: Tensor, prior_K: Tensor) -> Tensor:
    """pi(mu_k | f_i) proportional to p(mu_k) exp(mu_k . f_i): rows_BK that sum to 1."""
    return (features_BF @ prototypes_KF.T + prior_K.clamp_min(1e-12).log()).softmax(1)


@float32_losses
def prototype_transport_loss(prototypes_KF: Tensor, features_BF: Tensor, prior_K: Tensor) -> Tensor:
    """(L_{t -> mu} + L_{mu -> t}) / 2 with cost 1 - cos.

    Target to prototypes: each feature goes to the prototypes by its posterior. Prototypes to target: each prototype
    sends its mass p(mu_k) over the batch by softmax_i(mu_k . f_i), so none is left without images.
    """
    cost_BK = 1 - F.normalize(features_BF, dim=1) @ F.normalize(prototypes_KF, dim=1).T
    to_prototypes = (cost_BK * prototype_posterior(prototypes_KF, features_BF, prior_K)).sum(1).mean()
    spread_BK = (features_BF @ prototypes_KF.T).softmax(0)
    to_target = (prior_K * (cost_BK * spread_BK).sum(0)).sum()
    return (to_prototypes + to_target) / 2
