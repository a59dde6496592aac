"""Labels for the target that nobody gave: k-means over the whole domain, or votes of neighbours."""

from pmtrans.pseudo_labels.bank import NeighbourBank, SeenTarget
from pmtrans.pseudo_labels.kmeans import kmeans_pseudo_labels
from pmtrans.pseudo_labels.spherical_kmeans import spherical_kmeans

__all__ = ["NeighbourBank", "SeenTarget", "kmeans_pseudo_labels", "spherical_kmeans"]
