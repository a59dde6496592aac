"""Known labels in clusters and in propagation: they stay, and they tell what a cluster is called."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pmtrans.pseudo_labels import kmeans_pseudo_labels, propagated_probabilities


def two_clusters() -> tuple[Tensor, Tensor, Tensor]:
    """Features of two clusters of ten, predictions that call each by the wrong name, and one known image in each."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.tensor([[4.0, 0.0, 0.0], [0.0, 4.0, 0.0]])
    truth = torch.arange(20) // 10
    features = centres[truth] + 0.3 * torch.randn(20, 3, generator=generator)
    logits = 1.0 * F.one_hot(1 - truth, 2).float()
    seeds = torch.full((20,), -1)
    seeds[3], seeds[14] = 0, 1
    return features, logits, seeds


def test_two_known_images_of_each_class_turn_clusters_that_have_the_wrong_names() -> None:
    features, logits, seeds = two_clusters()
    truth = torch.arange(20) // 10
    assert torch.equal(kmeans_pseudo_labels(features, logits_MK=logits), 1 - truth)
    seeds[5], seeds[16] = 0, 1
    assert torch.equal(kmeans_pseudo_labels(features, logits_MK=logits, seeds_M=seeds), truth)
    for chunk in (3, 7):
        found = kmeans_pseudo_labels(features, logits_MK=logits, seeds_M=seeds, chunk=chunk)
        assert torch.equal(found, truth)


def test_known_rows_are_certain_and_spread_to_their_neighbours() -> None:
    features, logits, seeds = two_clusters()
    start = logits.softmax(1)
    without = propagated_probabilities(features, start)
    found = propagated_probabilities(features, start, seeds_M=seeds)
    assert torch.equal(found[3], torch.tensor([1.0, 0.0]))
    assert torch.equal(found[14], torch.tensor([0.0, 1.0]))
    truth = torch.arange(20) // 10
    right = found.gather(1, truth[:, None]).squeeze(1)
    before = without.gather(1, truth[:, None]).squeeze(1)
    assert (right > before).all()
    assert torch.allclose(found.sum(1), torch.ones(20), atol=1e-5)


def test_a_known_label_stays_even_alone_in_a_foreign_cluster() -> None:
    features, logits, _ = two_clusters()
    seeds = torch.full((20,), -1)
    seeds[0] = 0  # the others of its cluster are called 1, and nothing speaks for another name
    found = kmeans_pseudo_labels(features, logits_MK=logits, seeds_M=seeds)
    assert found[0] == 0


@pytest.mark.parametrize("draw", range(6))
def test_seeded_clusters_are_those_of_plain_loops(draw: int) -> None:
    """Round 1 by the softmax and the known rows, round 2 by the assignment; a 1 is appended, all rows of length 1.

    n known rows of a class weigh n / (n + 2) of what its predictions weigh.
    """
    generator = torch.Generator().manual_seed(draw)
    features = torch.randn(40, 3, generator=generator)
    hardly_any_of_the_last = torch.tensor([0, 0, 0, 4.0])
    logits = torch.randn(40, 4, generator=generator) - hardly_any_of_the_last
    seeds = torch.full((40,), -1)
    seeds[torch.tensor([2, 5, 9, 11, 30])] = torch.tensor([0, 0, 0, 1, 3])
    rows, known = logits.softmax(1).tolist(), seeds.tolist()
    points = []
    for row in features.tolist():
        length = (sum(value**2 for value in row) + 1) ** 0.5
        points.append([*(value / length for value in row), 1 / length])
    weights = []
    for k in range(4):
        mass = sum(row[k] for row, seed in zip(rows, known, strict=True) if seed < 0)
        weights.append(max(1.0, mass / (known.count(k) + 2)))

    def assign(shares: list[list[float]], present: set[int]) -> list[int]:
        found = []
        for point, seed in zip(points, known, strict=True):
            cosines = {}
            for k in sorted(present):
                centre = [sum(share[k] * p[i] for share, p in zip(shares, points, strict=True)) for i in range(4)]
                length = sum(value**2 for value in centre) ** 0.5
                cosines[k] = sum(a * b for a, b in zip(point, centre, strict=True)) / length
            found.append(seed if seed >= 0 else max(cosines, key=lambda k: cosines[k]))
        return found

    soft = [
        [weights[k] * (k == seed) for k in range(4)] if seed >= 0 else row
        for row, seed in zip(rows, known, strict=True)
    ]
    called = {seed if seed >= 0 else row.index(max(row)) for row, seed in zip(rows, known, strict=True)}
    first = assign(soft, called)
    second = assign([[float(k == label) for k in range(4)] for label in first], set(first))
    assert kmeans_pseudo_labels(features, logits_MK=logits, seeds_M=seeds).tolist() == second
    assert len(set(second)) >= 3
    assert weights[3] == 1.0 < weights[0] < weights[1]
