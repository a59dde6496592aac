"""Contrastive domain discrepancy (Kang et al., Contrastive Adaptation Network, CVPR 2019, Eq. "CDD").

Shapes: S source and T target images, F features, K classes. A label of -1 belongs to no class.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.losses.kernels import squared_distances
from pmtrans.losses.precision import float32_losses


@float32_losses
def contrastive_domain_discrepancy(
    source_SF: Tensor,
    target_TF: Tensor,
    source_labels_S: Tensor,
    target_labels_T: Tensor,
    classes: int,
    count: int = 5,
    factor: float = 2.0,
) -> Tensor:
    """CDD = mean_c D(c, c) - mean_{c != c'} D(c, c'), D(c, c') the MMD^2 of source class c and target class c'.

    Over the classes present in both domains (0 if there are none). Every pair of classes has its own bandwidth, the
    mean squared distance among its images: near classes are told apart by distances of their own size.
    """
    numbers_K = torch.arange(classes, device=source_SF.device)
    member_SK = (source_labels_S[:, None] == numbers_K).float()
    member_TK = (target_labels_T[:, None] == numbers_K).float()
    share_SK = member_SK / member_SK.sum(0).clamp_min(1)  # columns sum to 1: products with them are class means
    share_TK = member_TK / member_TK.sum(0).clamp_min(1)

    within_SS, within_TT = squared_distances(source_SF, source_SF), squared_distances(target_TF, target_TF)
    across_ST = squared_distances(source_SF, target_TF)
    with torch.no_grad():
        sums_KK = ((within_SS @ member_SK) * member_SK).sum(0)[:, None] + ((within_TT @ member_TK) * member_TK).sum(0)
        sums_KK = sums_KK + 2 * member_SK.T @ across_ST @ member_TK
        images_KK = member_SK.sum(0)[:, None] + member_TK.sum(0)
        bandwidth_KK = sums_KK / (images_KK * (images_KK - 1)).clamp_min(1)

    def kernel(distances: Tensor, bandwidth: Tensor) -> Tensor:
        scales = [factor ** (number - count // 2) for number in range(count)]
        return torch.stack([torch.exp(-distances / (bandwidth * s).clamp_min(1e-5)) for s in scales]).sum(0)

    kernel_SSK = kernel(within_SS[:, :, None], (member_SK @ bandwidth_KK)[:, None, :])  # of c = y_s, for each c'
    kernel_TTK = kernel(within_TT[:, :, None], (member_TK @ bandwidth_KK.T)[:, None, :])  # of c' = y_t, for each c
    kernel_ST = kernel(across_ST, member_SK @ bandwidth_KK @ member_TK.T)
    source_KK = torch.einsum("ic,jc,ijd->cd", share_SK, share_SK, kernel_SSK)  # e1
    target_KK = torch.einsum("id,jd,ijc->cd", share_TK, share_TK, kernel_TTK)  # e2
    discrepancy_KK = source_KK + target_KK - 2 * share_SK.T @ kernel_ST @ share_TK  # e3

    shared_K = (member_SK.sum(0) > 0) & (member_TK.sum(0) > 0)
    both_KK = (shared_K[:, None] & shared_K[None, :]).float()
    same_KK = torch.eye(classes, device=source_SF.device) * both_KK
    other_KK = both_KK - same_KK
    intra = (discrepancy_KK * same_KK).sum() / same_KK.sum().clamp_min(1)
    inter = (discrepancy_KK * other_KK).sum() / other_KK.sum().clamp_min(1)
    return intra - inter
