"""Few images, empty classes, zero features and gradients that must not flow."""

from __future__ import annotations

import math

import pytest
import torch

from pmtrans.pseudo_labels import (
    FeatureBank,
    NeighbourBank,
    label_confidence,
    propagated_probabilities,
    spherical_kmeans,
)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("images", "asked", "neighbours"), [(9, 5, 5), (9, 3, 3), (4, 5, 3), (2, 5, 1), (1, 5, 1)])
def test_a_bank_votes_by_all_other_images_where_there_are_few(images: int, asked: int, neighbours: int) -> None:
    bank = NeighbourBank(images, 4, 3, asked)
    assert bank.neighbours == neighbours
    if asked == 5:
        assert NeighbourBank(images, 4, 3).neighbours == neighbours


def test_banks_store_numbers_and_no_gradients() -> None:
    features, probabilities = normal(4, 3).requires_grad_(), normal(4, 2).softmax(1).requires_grad_()
    bank = FeatureBank(4, 3, probabilities_MK=torch.zeros(4, 2))
    bank.fill(features, probabilities_MK=probabilities)
    assert not bank.features_MF.requires_grad
    bank.store(torch.tensor([2, 0]), features[:2], probabilities_MK=probabilities[:2])
    assert not bank.probabilities_MK.requires_grad
    assert bank.features_MF.tolist() == [features[i].tolist() for i in (1, 1, 0, 3)]
    voting = NeighbourBank(4, 3, 2)
    _, confidence = voting.label(torch.arange(4), features, probabilities)
    assert not confidence.requires_grad


def test_a_class_that_no_image_is_predicted_as_has_no_vote() -> None:
    bank = NeighbourBank(3, 2, 3)
    sure = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    labels, confidence = bank.label(torch.arange(3), normal(3, 2), sure)
    assert bank.probabilities_MK[:, 2].tolist() == [0.0, 0.0, 0.0]
    assert confidence.isfinite().all()
    assert 2 not in labels.tolist()


def test_an_image_is_no_neighbour_of_itself_even_where_all_others_are_opposite() -> None:
    bank = NeighbourBank(2, 2, 2)
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    labels, _ = bank.label(torch.arange(2), opposite, torch.tensor([[0.9, 0.1], [0.1, 0.9]]))
    assert labels.tolist() == [1, 0]


def test_confidence_is_of_directions_whatever_their_length() -> None:
    features, labels = normal(12, 5), torch.arange(12) % 3
    units = features.double() / features.double().norm(dim=1, keepdim=True)
    centroids = torch.stack([units[labels == k].mean(0) for k in range(3)])
    expected = []
    for m in range(12):
        powers = [math.exp(float(units[m] @ c / c.norm()) / 0.05) for c in centroids]
        expected.append(powers[int(labels[m])] / sum(powers))
    for length in (1.0, 1e-3, 1e3):
        got = label_confidence(length * features, labels, 3)
        assert got.tolist() == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert not label_confidence(features.requires_grad_(), labels, 3).requires_grad


def test_a_feature_of_zeros_is_as_near_to_every_class() -> None:
    features = torch.cat([torch.zeros(1, 3), torch.eye(3)])
    confidence = label_confidence(features, torch.tensor([0, 0, 1, 2]), 3)
    assert float(confidence[0]) == pytest.approx(1 / 3)
    labels, distances = spherical_kmeans(features, torch.eye(3))
    assert labels[1:].tolist() == [0, 1, 2]
    assert float(distances[0]) == pytest.approx(0.5)


@pytest.mark.parametrize("only", [0, 1])
def test_spherical_kmeans_moves_the_centre_of_the_only_cluster(only: int) -> None:
    """From a centre aside, to the mean direction: distances are to that."""
    features = torch.tensor([[1.0, 0.1], [1.0, -0.3]])
    centres = torch.zeros(2, 2)
    centres[only] = torch.tensor([1.0, 1.0])
    labels, distances = spherical_kmeans(features.requires_grad_(), centres)
    assert labels.tolist() == [only, only]
    units = features.detach() / features.detach().norm(dim=1, keepdim=True)
    mean = units.sum(0) / units.sum(0).norm()
    assert distances.tolist() == pytest.approx([(1 - float(u @ mean)) / 2 for u in units], abs=1e-6)
    assert not distances.requires_grad


def test_a_cluster_of_one_image_moves_to_it_and_an_emptied_one_attracts_nothing() -> None:
    features = torch.tensor([[1.0, 0.0], [0.9, 0.2], [0.0, 1.0]])
    labels, distances = spherical_kmeans(features, torch.tensor([[1.0, 0.0], [0.6, 0.8]]))
    assert labels.tolist() == [0, 0, 1]
    assert float(distances[2]) == pytest.approx(0, abs=1e-6)
    # the second centre is nobody's nearest from the start; at the origin it would take the image that is opposite
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-0.1, 1.0]])
    labels, _ = spherical_kmeans(features, torch.tensor([[0.8, 0.6], [0.0, -1.0]]))
    assert labels.tolist() == [0, 0, 0, 0]


def propagated(features: list[list[float]], start: list[list[float]]) -> list[list[float]]:
    """In plain loops, for fewer images than neighbours are asked for."""
    images, classes = range(len(features)), range(len(start[0]))
    weights = []
    for i in images:
        row = []
        for j in images:
            dot = sum(a * b for a, b in zip(features[i], features[j], strict=True))
            row.append(0.0 if i == j else max(dot / math.hypot(*features[i]) / math.hypot(*features[j]), 1e-6) ** 3)
        weights.append([w / sum(row) for w in row])
    q = start
    for _ in range(30):
        q = [[0.9 * sum(weights[i][j] * q[j][k] for j in images) + 0.1 * start[i][k] for k in classes] for i in images]
    mass = [max(sum(q[i][k] for i in images), 1e-12) for k in classes]
    q = [[q[i][k] / mass[k] for k in classes] for i in images]
    return [[value / sum(row) for value in row] for row in q]


@pytest.mark.parametrize("images", [2, 3, 5])
@pytest.mark.parametrize("apart", [False, True])
def test_propagation_of_few_images_in_plain_loops(images: int, apart: bool) -> None:
    features = torch.eye(5)[:images] if apart else normal(images, 2).abs() + 0.1
    start = normal(images, 4, seed=2).softmax(1)
    start[:, 3] = 0.0  # a class that nobody is predicted as
    got = propagated_probabilities(features, start)
    expected = propagated(features.double().tolist(), start.double().tolist())
    assert got.flatten().tolist() == pytest.approx([v for row in expected for v in row], rel=1e-5, abs=1e-7)
    assert not propagated_probabilities(features, start.requires_grad_()).requires_grad


def test_one_image_keeps_its_prediction() -> None:
    assert propagated_probabilities(normal(1, 3), torch.tensor([[0.25, 0.75]])).tolist() == [[0.25, 0.75]]
