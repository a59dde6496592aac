"""Pseudo labels of the target: k-means over the whole domain, or a vote of nearest neighbours."""

from pmtrans.pseudo_labels.anchors import anchor_images
from pmtrans.pseudo_labels.bank import FeatureBank, NeighbourBank
from pmtrans.pseudo_labels.confidence import label_confidence
from pmtrans.pseudo_labels.kmeans import kmeans_pseudo_labels, spherical_kmeans
from pmtrans.pseudo_labels.propagation import propagated_probabilities

__all__ = [
    "FeatureBank",
    "NeighbourBank",
    "anchor_images",
    "kmeans_pseudo_labels",
    "label_confidence",
    "propagated_probabilities",
    "spherical_kmeans",
]
