"""Conditional kernel Bures distance between two domains (Luo and Ren, CVPR 2021, the empirical estimate).

R_{XX|Y} is the covariance operator of the features given the labels, in the space of a kernel; the distance is
tr(R_s) + tr(R_t) - 2 tr((R_s^1/2 R_t R_s^1/2)^1/2). All of it is computed from kernel matrices of the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.losses.kernels import gaussian_kernel
from pmtrans.losses.precision import float32_losses
from pmtrans.machine import fallback_device


@float32_losses
def conditional_kernel_bures_loss(
    source_SF: Tensor, target_TF: Tensor, source_labels_SK: Tensor, target_labels_TK: Tensor, epsilon: float = 1e-2
) -> Tensor:
    """d^2_CKB with Gaussian kernels on features and on (soft) labels; ``epsilon`` regularises the inverse."""
    features_NN = gaussian_kernel(torch.cat([source_SF, target_TF]))
    labels_NN = gaussian_kernel(torch.cat([source_labels_SK, target_labels_TK]))
    return conditional_bures_distance(features_NN, labels_NN, len(source_SF), epsilon)


def conditional_bures_distance(kernel_x_NN: Tensor, kernel_y_NN: Tensor, source: int, epsilon: float) -> Tensor:
    """The same from the kernel matrices of both domains together, the first ``source`` rows being the source.

    With H the centring matrix and L L^T = eps n I + H K_Y H, the operator is (1/n) A A^T, A = sqrt(eps n) Phi H L^-T.
    So tr(R) = eps tr(L^-1 H K_X H L^-T), and the last trace is the nuclear norm of A_t^T A_s / sqrt(n m).
    """
    device = kernel_x_NN.device
    place = fallback_device(device)
    kernel_x_NN, kernel_y_NN = kernel_x_NN.to(place), kernel_y_NN.to(place)
    inverse_s, trace_s = _conditional(kernel_x_NN[:source, :source], kernel_y_NN[:source, :source], epsilon)
    inverse_t, trace_t = _conditional(kernel_x_NN[source:, source:], kernel_y_NN[source:, source:], epsilon)
    across_TS = inverse_t @ _centred(kernel_x_NN[source:, :source]) @ inverse_s.T
    fidelity: Tensor = epsilon * torch.linalg.svdvals(across_TS).sum()  # sqrt(eps n) sqrt(eps m) / sqrt(n m) = eps
    return (trace_s + trace_t - 2 * fidelity).to(device)


def _conditional(kernel_x_NN: Tensor, kernel_y_NN: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """L^-1 and tr(R_{XX|Y}) of one domain."""
    identity_NN = torch.eye(len(kernel_x_NN), device=kernel_x_NN.device, dtype=kernel_x_NN.dtype)
    lower_NN = torch.linalg.cholesky(epsilon * len(kernel_x_NN) * identity_NN + _centred(kernel_y_NN))
    inverse_NN = torch.linalg.solve_triangular(lower_NN, identity_NN, upper=False)
    trace = epsilon * ((inverse_NN @ _centred(kernel_x_NN)) * inverse_NN).sum()
    return inverse_NN, trace


def _centred(kernel_NM: Tensor) -> Tensor:
    """H K H."""
    return kernel_NM - kernel_NM.mean(0, keepdim=True) - kernel_NM.mean(1, keepdim=True) + kernel_NM.mean()
