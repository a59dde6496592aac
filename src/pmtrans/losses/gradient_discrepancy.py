"""Gradient discrepancy (Du et al., Cross-Domain Gradient Discrepancy Minimization, CVPR 2021, Eq. 9)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pmtrans.losses.precision import float32_losses


@float32_losses
def gradient_discrepancy(source_loss: Tensor, target_loss: Tensor, classifier: nn.Module) -> Tensor:
    """1 - cos between the two losses' gradients, differentiable itself.

    A mean over the rows of a matrix (each output's own direction), then over the classifier's parameters.
    """
    parameters = list(classifier.parameters())
    source, target = (torch.autograd.grad(x, parameters, create_graph=True) for x in (source_loss, target_loss))
    cosines = [F.cosine_similarity(s, t, dim=-1).mean() for s, t in zip(source, target, strict=True)]
    return 1 - torch.stack(cosines).mean()
