from __future__ import annotations

import math

import pytest
import torch

from pmtrans.pseudo_labels import label_confidence


def plain_confidence(features: list[list[float]], labels: list[int], classes: int) -> list[float]:
    def unit(row: list[float]) -> list[float]:
        length = math.sqrt(sum(value * value for value in row))
        return [value / length for value in row]

    points = [unit(row) for row in features]
    centroids = {
        k: unit(
            [sum(p[d] for p, label in zip(points, labels, strict=True) if label == k) for d in range(len(points[0]))]
        )
        for k in range(classes)
        if k in labels
    }
    found = []
    for point, label in zip(points, labels, strict=True):
        powers = {k: math.exp(sum(a * b for a, b in zip(point, c, strict=True)) / 0.05) for k, c in centroids.items()}
        found.append(powers[label] / sum(powers.values()))
    return found


@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_it_is_the_share_of_the_own_centroid_in_plain_loops(chunk: int) -> None:
    torch.manual_seed(0)
    features, labels = torch.randn(11, 6), torch.tensor([0, 1, 3, 3, 1, 0, 0, 3, 1, 1, 3])  # nobody is class 2
    got = label_confidence(features, labels, 4, chunk)
    assert got.tolist() == pytest.approx(plain_confidence(features.tolist(), labels.tolist(), 4), rel=1e-4)


def test_an_image_between_two_clusters_is_believed_less() -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [1.0, 0.9]])
    confidence = label_confidence(features, torch.tensor([0, 0, 1, 1, 0]), 2)
    assert confidence[4] < confidence[:4].min()
