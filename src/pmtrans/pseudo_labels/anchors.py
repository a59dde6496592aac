"""Anchors: the target images that a model is surest of. Where no source image is at hand, they are what it must not
forget.

An image may be an anchor if the prediction for it is also that of its neighbours (``propagation.py``). Of each
predicted class the most confident quarter are anchors. M images, K classes, F feature width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pmtrans.pseudo_labels.propagation import propagated_probabilities

SHARE = 0.25  # of each predicted class


@torch.no_grad()
def anchor_images(features_MF: Tensor, logits_MK: Tensor) -> Tensor:
    """Places of the anchors, ascending; at least one of each class that an agreed image has."""
    probabilities_MK = logits_MK.float().softmax(1)
    confidence_M, predicted_M = probabilities_MK.max(1)
    agreed_M = propagated_probabilities(features_MF, probabilities_MK).argmax(1) == predicted_M
    if not agreed_M.any():
        agreed_M = torch.ones_like(agreed_M)
    anchors = []
    for label in predicted_M[agreed_M].unique():
        members = ((predicted_M == label) & agreed_M).nonzero().flatten()
        count = max(1, round(SHARE * int((predicted_M == label).sum())))
        surest = confidence_M[members].argsort(descending=True, stable=True)[:count]
        anchors.append(members[surest])
    return torch.cat(anchors).sort().values
