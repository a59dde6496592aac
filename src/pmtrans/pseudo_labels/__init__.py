"""Pseudo labels of the target: k-means over the whole domain, or a vote of nearest neighbours."""

from pmtrans.pseudo_labels.anchors import anchor_images
from pmtrans.pseudo_labels.bank import FeatureBank, NeighbourBank
from pmtrans.pseudo_labels.cluster_agreement import LAGS, SETTLED, cluster_agreement
from pmtrans.pseudo_labels.confidence import label_confidence
from pmtrans.pseudo_labels.kmeans import kmeans_pseudo_labels, spherical_kmeans
from pmtrans.pseudo_labels.propagation import propagated_probabilities
from pmtrans.pseudo_labels.shares import agreed_shares, class_weights, present_classes, without_absent
from pmtrans.pseudo_labels.transport import transported_probabilities
from pmtrans.pseudo_labels.unknown import otsu_threshold, strangeness, unknown_scores
from pmtrans.pseudo_labels.views import both_views, mean_prediction

__all__ = [
    "LAGS",
    "SETTLED",
    "FeatureBank",
    "NeighbourBank",
    "agreed_shares",
    "anchor_images",
    "both_views",
    "class_weights",
    "cluster_agreement",
    "kmeans_pseudo_labels",
    "label_confidence",
    "mean_prediction",
    "otsu_threshold",
    "present_classes",
    "propagated_probabilities",
    "spherical_kmeans",
    "strangeness",
    "transported_probabilities",
    "unknown_scores",
    "without_absent",
]
