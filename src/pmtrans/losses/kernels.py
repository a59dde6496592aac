"""Gaussian kernels of features, which distances between two domains are made of. N and M images, F features."""

from __future__ import annotations

import torch
from torch import Tensor


def squared_distances(one_NF: Tensor, other_MF: Tensor) -> Tensor:
    """||a - b||^2 for every pair; centred first, so the expanded square keeps its precision far from the origin."""
    centre_F = one_NF.detach().mean(0)
    one_NF, other_MF = one_NF - centre_F, other_MF - centre_F
    squares_NM = one_NF.square().sum(1)[:, None] + other_MF.square().sum(1)[None, :]
    return (squares_NM - 2 * one_NF @ other_MF.T).clamp_min(0)


def gaussian_kernel(features_NF: Tensor, count: int = 1, factor: float = 2.0) -> Tensor:
    """Sum of ``count`` Gaussians exp(-d^2 / h) of all pairs, N x N (Long et al., DAN, ICML 2015).

    The middle bandwidth h is the mean squared distance of distinct pairs, without gradient; neighbouring bandwidths
    differ by ``factor``.
    """
    distances_NN = squared_distances(features_NF, features_NF)
    pairs = max(1, len(features_NF) * (len(features_NF) - 1))
    bandwidth = (distances_NN.detach().sum() / pairs).clamp_min(1e-12)
    scales = [factor ** (number - count // 2) for number in range(count)]
    return torch.stack([torch.exp(-distances_NN / (bandwidth * scale)) for scale in scales]).sum(0)
