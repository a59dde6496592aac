"""How far a classifier agrees with the clusters of its own features: a sign of the distance between two domains.

Where the target looks like the source, the classifier calls an image as its cluster does.
Shapes: M images, K classes, F feature width.
"""

from __future__ import annotations

from torch import Tensor

from pmtrans.pseudo_labels.kmeans import kmeans_pseudo_labels

LAGS = 0.8  # of the target: a classifier that calls fewer images as their clusters do lags behind its own features
SETTLED = 0.93  # of the target: above it nothing better than the classifier is known (D2W 0.96; other tasks to 0.88)


def cluster_agreement(features_MF: Tensor, logits_MK: Tensor, seeds_M: Tensor | None = None) -> Tensor:
    """The share of images whose predicted class is that of their cluster."""
    clusters_M = kmeans_pseudo_labels(features_MF, logits_MK=logits_MK, seeds_M=seeds_M)
    return (clusters_M == logits_MK.argmax(1)).float().mean()
