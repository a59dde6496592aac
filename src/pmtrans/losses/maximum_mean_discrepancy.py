"""Maximum mean discrepancy (Gretton et al., A Kernel Two-Sample Test, JMLR 2012)."""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.losses.kernels import gaussian_kernel
from pmtrans.losses.precision import float32_losses


@float32_losses
def maximum_mean_discrepancy(source_SF: Tensor, target_TF: Tensor, count: int = 5, factor: float = 2.0) -> Tensor:
    """MMD^2 = mean k(s, s') + mean k(t, t') - 2 mean k(s, t), all pairs."""
    kernel_NN = gaussian_kernel(torch.cat([source_SF, target_TF]), count, factor)
    size = len(source_SF)
    within = kernel_NN[:size, :size].mean() + kernel_NN[size:, size:].mean()
    return within - 2 * kernel_NN[:size, size:].mean()
