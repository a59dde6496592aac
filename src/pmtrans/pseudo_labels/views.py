"""Two views of an image side by side: of the model as it is, and of the backbone before any training.

What the pretrained network tells apart and training on the source forgets is still there in the second view (Zhang et
al., Rethinking the Role of Pre-Trained Networks in Source-Free Domain Adaptation, ICCV 2023, let two such networks
label the target together).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.large_rows import folder_of, rows_beside
from pmtrans.pseudo_labels.kmeans import CHUNK, slices


@torch.no_grad()
def both_views(features_MF: Tensor, untrained_MG: Tensor) -> Tensor:
    """M x (F + G): each view centred and of length 1, so that both have the same say in a cosine."""
    if folder_of(features_MF) is None:
        return torch.cat([_centred(features_MF), _centred(untrained_MG)], dim=1)
    width = features_MF.shape[1]
    both_MH = rows_beside(features_MF, width + untrained_MG.shape[1])
    for view, columns in ((features_MF, slice(width)), (untrained_MG, slice(width, None))):
        pieces = slices(len(view), CHUNK)
        mean_F = sum((view[piece].double().sum(0) for piece in pieces), torch.zeros(())) / len(view)
        for piece in pieces:
            both_MH[piece, columns] = F.normalize(view[piece].float() - mean_F.float(), dim=1)
    return both_MH


@torch.no_grad()
def mean_prediction(logits_MK: Tensor, others_MK: Tensor) -> Tensor:
    """Log of the mean of two classifiers' probabilities."""
    mean_MK = rows_beside(logits_MK, logits_MK.shape[1])
    for piece in slices(len(logits_MK), CHUNK):
        one, other = (logits[piece].float().log_softmax(1) for logits in (logits_MK, others_MK))
        mean_MK[piece] = torch.logaddexp(one, other) - math.log(2)
    return mean_MK


def _centred(features_MF: Tensor) -> Tensor:
    features_MF = features_MF.float()
    return F.normalize(features_MF - features_MF.mean(0), dim=1)
