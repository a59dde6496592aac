"""Anchors against plain loops."""

from __future__ import annotations

import torch

from pmtrans.pseudo_labels.anchors import anchor_images
from pmtrans.pseudo_labels.propagation import propagated_probabilities


def test_anchors_are_the_surest_quarter_of_each_class_among_those_whose_neighbours_agree() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    features = torch.eye(5)[labels] * 2 + 0.5 * torch.randn(60, 5, generator=generator)
    logits = 2 * features[:, :3] + 2 * torch.randn(60, 3, generator=generator)
    rows = logits.softmax(1)
    near = propagated_probabilities(features, rows).argmax(1).tolist()
    called = [row.index(max(row)) for row in rows.tolist()]
    assert 0 < sum(a != b for a, b in zip(near, called, strict=True)) < 30
    expected: list[int] = []
    for label in range(3):
        agreed = [m for m in range(60) if called[m] == label == near[m]]
        agreed.sort(key=lambda m: -max(rows[m].tolist()))
        expected += agreed[: round(0.25 * called.count(label))]
    found = anchor_images(features, logits.requires_grad_())
    assert found.tolist() == sorted(expected)
    assert 9 <= len(found) <= 18


def test_a_class_of_one_image_has_one_anchor() -> None:
    features = torch.tensor([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 2)
    logits = torch.tensor([[4.0, 0.0], [5.0, 0.0], [3.0, 0.0], [2.0, 0.0], [0.0, 4.0], [0.0, 4.0]])
    assert anchor_images(features, logits).tolist() == [1, 4]  # of equal ones the first


def test_where_no_neighbour_agrees_all_images_may_be_anchors() -> None:
    features = torch.tensor([[-0.78, 0.40], [-0.87, 0.33], [-0.45, -0.93], [0.17, -0.19]])
    logits = torch.tensor(
        [[0.23, 0.44, 0.00, 0.00], [0.35, 0.13, -0.16, 0.59], [0.08, 0.08, 0.09, 0.47], [-0.31, -0.09, 0.13, 0.47]]
    )
    near, called = propagated_probabilities(features, logits.softmax(1)).argmax(1), logits.argmax(1)
    assert called.tolist() == [1, 3, 3, 3]
    assert not (near == called).any()
    assert anchor_images(features, logits).tolist() == [0, 3]  # of class 3 one of three, the surest
