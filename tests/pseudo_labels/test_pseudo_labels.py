from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pmtrans.pseudo_labels import NeighbourBank, kmeans_pseudo_labels


def plain_kmeans(features: list[list[float]], probabilities: list[list[float]]) -> list[int]:
    """The two rounds in plain loops."""
    points = []
    for row in features:
        row = [*row, 1.0]
        length = math.sqrt(sum(value * value for value in row))
        points.append([value / length for value in row])
    classes = len(probabilities[0])

    def cosine(a: list[float], b: list[float]) -> float:
        lengths = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
        return sum(x * y for x, y in zip(a, b, strict=True)) / lengths

    def assign(weights: list[list[float]]) -> list[int]:
        centroids: dict[int, list[float]] = {}
        for k in range(classes):
            mass = sum(weight[k] for weight in weights)
            if any(max(weight) == weight[k] for weight in weights):
                centroids[k] = [
                    sum(weights[m][k] * points[m][d] for m in range(len(points))) / mass for d in range(len(points[0]))
                ]
        return [max(centroids, key=lambda k: cosine(point, centroids[k])) for point in points]

    first = assign(probabilities)
    return assign([[float(label == k) for k in range(classes)] for label in first])


@pytest.mark.parametrize("chunk", [1, 7, 30, 1000])
def test_kmeans_equals_plain_loops_for_every_chunk(chunk: int) -> None:
    torch.manual_seed(0)
    features, probabilities = torch.randn(30, 5), (3 * torch.randn(30, 4)).softmax(1)
    got = kmeans_pseudo_labels(features, logits_MK=probabilities.log(), chunk=chunk)
    assert got.tolist() == plain_kmeans(features.tolist(), probabilities.tolist())


@settings(max_examples=25, deadline=None)
@given(
    images=st.integers(1, 60), width=st.integers(1, 9), classes=st.integers(2, 12), chunk=st.integers(1, 70),
    seed=st.integers(0, 2**31),
)  # fmt: skip
def test_kmeans_equals_the_dense_formula_in_double_precision(
    images: int, width: int, classes: int, chunk: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    features, logits = random.normal(size=(images, width)), 4 * random.normal(size=(images, classes))
    points = np.concatenate([features, np.ones((images, 1))], 1)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    weights = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    for _ in range(2):
        sums = weights.T @ points
        cosine = points @ (sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)).T
        cosine[:, ~np.isin(np.arange(classes), weights.argmax(1))] = -2
        two = np.sort(cosine, axis=1)[:, -2:]
        assume(float((two[:, 1] - two[:, 0]).min()) > 1e-4)  # a tie may be broken either way
        weights = np.eye(classes)[cosine.argmax(1)]
    got = kmeans_pseudo_labels(torch.tensor(features).float(), logits_MK=torch.tensor(logits).float(), chunk=chunk)
    assert got.tolist() == cosine.argmax(1).tolist()


def test_inputs_are_left_as_they_are() -> None:
    torch.manual_seed(0)
    features, logits = torch.randn(20, 3), torch.randn(20, 4)
    kept = features.clone(), logits.clone()
    kmeans_pseudo_labels(features, logits_MK=logits, chunk=7)
    assert torch.equal(features, kept[0])
    assert torch.equal(logits, kept[1])


def test_a_class_without_any_weight_draws_nobody() -> None:
    features = torch.tensor([[1.0, 30.0], [-1.0, -30.0], [1.0, 29.0]])
    logits = torch.tensor([[9.0, 0.0, -900.0], [0.0, 9.0, -900.0], [9.0, 0.0, -900.0]])
    assert kmeans_pseudo_labels(features, logits_MK=logits).tolist() == [0, 1, 0]


def test_a_class_that_nobody_is_predicted_as_draws_nobody() -> None:
    features = torch.tensor([[5.0, 0.0], [4.0, 3.0], [0.0, 5.0]])
    logits = torch.tensor([[3.0, 0.0, 0.0], [2.0, 0.0, 1.9], [0.0, 3.0, 0.0]])  # class 2 is second best at most
    assert 2 not in kmeans_pseudo_labels(features, logits_MK=logits).tolist()


def test_a_class_that_nobody_was_assigned_to_is_left_out() -> None:
    features = torch.tensor([[5.0, 0.0], [4.0, 0.1], [0.0, 5.0], [0.1, 4.0]])
    probabilities = torch.tensor([[0.9, 0.05, 0.05], [0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.9, 0.05]])
    assert kmeans_pseudo_labels(features, logits_MK=probabilities.log()).tolist() == [0, 0, 1, 1]


def test_neighbours_vote_without_the_image_itself() -> None:
    torch.manual_seed(0)
    features, probabilities = torch.randn(12, 4), torch.randn(12, 3).softmax(1)
    bank = NeighbourBank(12, 4, 3, neighbours=5)
    bank.fill(features, probabilities_MK=probabilities)
    index = torch.tensor([2, 7, 4])
    seen, logits = torch.randn(3, 4), torch.randn(3, 3)
    labels, confidences = bank.label(index, seen, logits.softmax(1))

    def unit(row: list[float]) -> list[float]:
        return [value / math.sqrt(sum(v * v for v in row)) for value in row]

    kept = [unit(row) for row in features.tolist()]

    def balanced(rows: list[list[float]]) -> list[list[float]]:
        """p^2 over its mean of each class; the authors' code has the sum, which is the batch size times that."""
        mean = [sum(row[k] ** 2 for row in rows) / len(rows) for k in range(3)]
        return [[row[k] ** 2 / mean[k] for k in range(3)] for row in rows]

    votes = balanced(probabilities.tolist())
    for place, row, new in zip(index.tolist(), balanced(logits.softmax(1).tolist()), seen.tolist(), strict=True):
        votes[place] = row
        kept[place] = unit(new)
    for position, place in enumerate(index.tolist()):
        similarity = [sum(a * b for a, b in zip(kept[place], other, strict=True)) for other in kept]
        nearest = sorted((m for m in range(12) if m != place), key=lambda m: -similarity[m])[:5]
        mean = [sum(votes[m][k] for m in nearest) / 5 for k in range(3)]
        assert int(labels[position]) == mean.index(max(mean))
        assert float(confidences[position]) == pytest.approx(max(mean), rel=1e-4)


def test_a_bank_smaller_than_the_number_of_neighbours_still_votes() -> None:
    bank = NeighbourBank(3, 2, 2)
    bank.fill(torch.eye(3, 2), probabilities_MK=torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.2, 0.8]]))
    labels, _ = bank.label(torch.tensor([0]), torch.tensor([[1.0, 0.0]]), torch.tensor([[0.9, 0.1]]))
    assert labels.tolist() == [1]
