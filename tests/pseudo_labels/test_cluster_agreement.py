"""Agreement of a classifier with the clusters of its features."""

from __future__ import annotations

import pytest
import torch

from pmtrans.pseudo_labels import cluster_agreement

FEATURES = torch.tensor([[5.0, 0.0], [5.0, 0.2], [5.0, 0.4], [0.0, 5.0], [0.2, 5.0], [0.4, 5.0]])


def test_a_classifier_that_calls_every_image_as_its_cluster_agrees_wholly() -> None:
    logits = 10 * FEATURES
    assert float(cluster_agreement(FEATURES, logits)) == 1


def test_one_image_in_six_that_is_called_otherwise_is_counted() -> None:
    logits = 10 * FEATURES
    logits[2] = torch.tensor([0.0, 1.0])  # its cluster is the first, whatever the classifier says
    assert float(cluster_agreement(FEATURES, logits)) == pytest.approx(5 / 6)
