"""Transferable semantic augmentation in closed form (Li et al., TSA, CVPR 2021, Eq. "L_TSA").

Source features of class y are shifted by samples of N(strength * (mu_t - mu_s)_y, strength * Sigma_t,y); the cross
entropy of shifted logits is an upper bound of the expected cross entropy over all samples.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.losses.precision import float32_losses


@float32_losses
def augmented_logits(
    logits_BK: Tensor,
    labels_B: Tensor,
    weight_KF: Tensor,
    source_means_KF: Tensor,
    target_features_MF: Tensor,
    target_labels_M: Tensor,
    strength: float,
) -> Tensor:
    """z_c + strength (w_c - w_y).(mu_t - mu_s)_y + strength/2 (w_c - w_y)^T Sigma_t,y (w_c - w_y).

    (w_c - w_y)^T Sigma_y (w_c - w_y) is the variance of z_c - z_y over the target features of class y, so the logits of
    the stored features suffice and no F x F covariance is built. A label of -1 marks an image not seen yet; classes
    without a target image are not shifted.
    """
    classes = len(weight_KF)
    member_MK = (target_labels_M[:, None] == torch.arange(classes, device=weight_KF.device)).to(weight_KF.dtype)
    count_K = member_MK.sum(0)
    share_MK = member_MK / count_K.clamp_min(1)
    known_M = target_labels_M.clamp_min(0)

    target_MK = target_features_MF @ weight_KF.T
    margin_MK = target_MK - target_MK.gather(1, known_M[:, None])  # z_c - z_y, y the image's own label
    mean_KK = share_MK.T @ margin_MK  # row y: mean over class y
    variance_KK = share_MK.T @ (margin_MK - mean_KK[known_M]).square()
    source_KK = source_means_KF @ weight_KF.T
    source_KK = source_KK - source_KK.diagonal()[:, None]
    shift_KK = strength * (mean_KK - source_KK) + 0.5 * strength * variance_KK
    return logits_BK + (shift_KK * (count_K > 0)[:, None])[labels_B]
