"""Losses, one per file: computed in float32, with the paper and equation cited."""

from pmtrans.losses.classification import classification_loss
from pmtrans.losses.mixup_feature import identity_similarity, label_similarity, mixup_feature_loss
from pmtrans.losses.mixup_label import mixup_label_loss
from pmtrans.losses.tradeoff import Tradeoff

__all__ = [
    "Tradeoff",
    "classification_loss",
    "identity_similarity",
    "label_similarity",
    "mixup_feature_loss",
    "mixup_label_loss",
]
