from __future__ import annotations

import math

import pytest
import torch

from pmtrans.pseudo_labels import propagated_probabilities


def plain_propagation(features: list[list[float]], start: list[list[float]]) -> list[list[float]]:
    """Ten neighbours by cosine, thirty rounds, in plain loops."""
    images, classes = len(features), len(start[0])

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))

    graph = []
    for m in range(images):
        near = sorted((o for o in range(images) if o != m), key=lambda o: -cosine(features[m], features[o]))[:10]
        weights = [max(cosine(features[m], features[o]), 1e-6) ** 3 for o in near]
        graph.append([(o, weight / sum(weights)) for o, weight in zip(near, weights, strict=True)])
    spread = start
    for _ in range(30):
        spread = [
            [0.9 * sum(w * spread[o][k] for o, w in graph[m]) + 0.1 * start[m][k] for k in range(classes)]
            for m in range(images)
        ]
    mass = [sum(row[k] for row in spread) for k in range(classes)]
    balanced = [[row[k] / mass[k] for k in range(classes)] for row in spread]
    return [[value / sum(row) for value in row] for row in balanced]


@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_it_equals_plain_loops_for_every_chunk(chunk: int) -> None:
    torch.manual_seed(0)
    features, start = torch.randn(25, 5), torch.randn(25, 3).softmax(1)
    got = propagated_probabilities(features, start, chunk)
    for row, expected in zip(got.tolist(), plain_propagation(features.tolist(), start.tolist()), strict=True):
        assert row == pytest.approx(expected, rel=1e-3)


def test_a_wrong_prediction_amid_a_cluster_is_outvoted() -> None:
    torch.manual_seed(0)
    features = torch.cat([torch.tensor([5.0, 0.0]), torch.tensor([0.0, 5.0])]).view(2, 2).repeat_interleave(15, 0)
    features = features + 0.3 * torch.randn(30, 2)
    truth = torch.arange(2).repeat_interleave(15)
    start = torch.nn.functional.one_hot(truth, 2) * 0.6 + 0.2
    start[3], start[20] = start[20].clone(), start[3].clone()
    assert propagated_probabilities(features, start).argmax(1).tolist() == truth.tolist()


def test_one_image_keeps_its_prediction() -> None:
    assert propagated_probabilities(torch.ones(1, 4), torch.tensor([[0.3, 0.7]])).tolist() == [
        pytest.approx([0.3, 0.7])
    ]
