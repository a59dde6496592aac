from __future__ import annotations

import math

import pytest
import torch

from pmtrans.pseudo_labels import spherical_kmeans


def plain(points: list[list[float]], centres: list[list[float]]) -> tuple[list[int], list[float]]:
    def unit(row: list[float]) -> list[float]:
        length = math.sqrt(sum(value * value for value in row))
        return [value / length for value in row]

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True))

    points, centres, labels = [unit(p) for p in points], [unit(c) for c in centres], [-1] * len(points)
    while True:
        assigned = [max(range(len(centres)), key=lambda k: cosine(point, centres[k])) for point in points]
        if assigned == labels:
            return labels, [(1 - cosine(p, centres[k])) / 2 for p, k in zip(points, labels, strict=True)]
        labels = assigned
        for k in range(len(centres)):
            mine = [p for p, label in zip(points, labels, strict=True) if label == k]
            if mine:
                centres[k] = unit([sum(values) for values in zip(*mine, strict=True)])


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_spherical_kmeans_equals_plain_loops_and_runs_until_nothing_changes(chunk: int) -> None:
    torch.manual_seed(1)
    points, centres = torch.randn(40, 5), torch.randn(4, 5)
    labels, distances = spherical_kmeans(points, centres, chunk=chunk)
    expected_labels, expected_distances = plain(points.tolist(), centres.tolist())
    assert labels.tolist() == expected_labels
    assert torch.allclose(distances, torch.tensor(expected_distances), atol=1e-5)
    assert labels.tolist() != plain(points.tolist(), points[:4].tolist())[0]  # where it starts matters


def test_a_centre_of_zeros_is_no_class() -> None:
    points = torch.tensor([[-1.0, 0.1], [-1.0, -0.1]])
    labels, _ = spherical_kmeans(points, torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    assert labels.tolist() == [0, 0]


def test_a_cluster_that_loses_all_its_images_keeps_its_centre_and_can_win_them_back() -> None:
    points = [[1.0, 0.05], [1.0, -0.05], [0.9, 0.3], [-0.2, 1.0], [0.1, 1.0]]
    centres = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.1]]
    labels, distances = spherical_kmeans(torch.tensor(points), torch.tensor(centres))
    expected = plain(points, centres)
    assert labels.tolist() == expected[0]
    assert distances.tolist() == pytest.approx(expected[1], abs=1e-6)
    assert 2 not in expected[0]
