"""Which classes a target holds, and its labels by transport: against plain loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pmtrans.pseudo_labels import agreed_shares, class_weights, kmeans_pseudo_labels, present_classes
from pmtrans.pseudo_labels import propagated_probabilities as propagated
from pmtrans.pseudo_labels.propagation import nearest_neighbours
from pmtrans.pseudo_labels.shares import typical_share, without_absent
from pmtrans.pseudo_labels.transport import transport_plan, transported_probabilities


def half_of_the_classes(images: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    """Features and logits of six classes, of which the target has three; some images lean to an absent one."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(3).repeat_interleave(images)
    features = 3 * torch.eye(6)[labels] + 0.4 * torch.randn(len(labels), 6, generator=generator)
    logits = features.clone()
    logits[::10, 4] += 3.5
    return features, logits, labels


def test_shares_are_those_of_the_images_that_two_labellings_agree_on() -> None:
    torch.manual_seed(0)
    features, logits = torch.randn(50, 5), torch.randn(50, 4)
    clusters = kmeans_pseudo_labels(features, logits_MK=logits).tolist()
    near = propagated(features, logits.softmax(1)).argmax(1).tolist()
    agreed = [one for one, other in zip(clusters, near, strict=True) if one == other]
    assert 0 < len(agreed) < 50
    expected = [agreed.count(k) / len(agreed) for k in range(4)]
    assert agreed_shares(features, logits).tolist() == pytest.approx(expected)


def test_absent_classes_are_found_and_labels_without_them_are_right() -> None:
    features, logits, labels = half_of_the_classes()
    present, shares = present_classes(features, logits)
    assert present.tolist() == [True, True, True, False, False, False]
    assert shares.tolist() == pytest.approx([1 / 3] * 3 + [0] * 3, abs=0.05)
    masked = without_absent(logits, present)
    assert kmeans_pseudo_labels(features, logits_MK=masked).tolist() == labels.tolist()
    assert propagated(features, masked.softmax(1)).argmax(1).tolist() == labels.tolist()


def test_a_target_with_all_classes_keeps_them() -> None:
    labels = torch.arange(4).repeat_interleave(10)
    features = 3 * torch.eye(4)[labels] + 0.3 * torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    present, shares = present_classes(features, features)
    assert present.all()
    assert class_weights(present, shares).tolist() == pytest.approx([1.0] * 4, abs=0.1)


def test_weights_are_one_in_the_mean_of_present_classes_and_none_elsewhere() -> None:
    shares = [0.5, 0.3, 0.15, 0.05, 0.0]
    present = [True, True, True, False, False]
    typical = sum(share * share for share in shares)
    capped = [min(1.0, share / typical) if here else 0.0 for share, here in zip(shares, present, strict=True)]
    mean = sum(capped) / sum(present)
    got = class_weights(torch.tensor(present), torch.tensor(shares))
    assert got.tolist() == pytest.approx([value / mean for value in capped])
    assert typical_share(torch.tensor(shares)).item() == pytest.approx(typical)


def test_one_image_has_one_class() -> None:
    present, shares = present_classes(torch.ones(1, 3), torch.tensor([[0.0, 2.0]]))
    assert present.tolist() == [False, True]
    assert shares.tolist() == [0.0, 1.0]


def test_a_plan_has_the_masses_of_images_and_classes() -> None:
    torch.manual_seed(0)
    scores, prior = torch.randn(12, 3), torch.tensor([0.5, 0.3, 0.2])
    plan = transport_plan(scores, prior, scalings=200)
    assert plan.sum(1).tolist() == pytest.approx([1.0] * 12)
    assert plan.sum(0).tolist() == pytest.approx([6.0, 3.6, 2.4], rel=1e-3)
    rows = [[math.exp(value) for value in row] for row in scores.tolist()]  # Sinkhorn, in plain loops
    for _ in range(200):
        for k, share in enumerate(prior.tolist()):
            total = sum(row[k] for row in rows)
            rows = [[v * 12 * share / total if j == k else v for j, v in enumerate(row)] for row in rows]
        rows = [[value / sum(row) for value in row] for row in rows]
    assert plan.tolist() == [pytest.approx(row, rel=1e-3) for row in rows]


def test_a_class_without_a_share_takes_no_image() -> None:
    plan = transport_plan(torch.zeros(10, 2), torch.tensor([1.0, 0.0]))
    assert plan[:, 1].max() < 1e-5


def test_transport_with_the_right_balance_labels_a_long_tail() -> None:
    labels = torch.tensor([0] * 40 + [1] * 10 + [2] * 4)
    generator = torch.Generator().manual_seed(0)
    features = 3 * torch.eye(3)[labels] + 0.6 * torch.randn(54, 3, generator=generator)
    right = transported_probabilities(features, features, torch.bincount(labels) / 54).argmax(1)
    assert right.tolist() == labels.tolist()
    uniform = transported_probabilities(features, features, torch.full((3,), 1 / 3)).argmax(1)
    assert (uniform != labels).sum() > 5


def test_transported_labels_are_those_of_plain_loops() -> None:
    """Centres by the predictions, then the plan to them, ten times; a prior that does not sum to 1 is normalised."""
    generator = torch.Generator().manual_seed(1)
    features, logits = torch.randn(9, 4, generator=generator), 2 * torch.randn(9, 3, generator=generator)
    prior = [4.0, 3.0, 2.0]
    points = [[value / math.sqrt(sum(v * v for v in row)) for value in row] for row in features.tolist()]
    plan = []
    for row in logits.tolist():
        powers = [math.exp(value) for value in row]
        plan.append([power / sum(powers) for power in powers])
    for _ in range(10):
        kernel = [[0.0] * 3 for _ in range(9)]
        for k in range(3):
            centre = [sum(plan[m][k] * points[m][i] for m in range(9)) for i in range(4)]
            length = math.sqrt(sum(value * value for value in centre))
            for m in range(9):
                cosine = sum(a * b for a, b in zip(points[m], centre, strict=True)) / length
                kernel[m][k] = math.exp(cosine / 0.05)
        a, b = [1.0] * 9, [1.0] * 3
        for _ in range(50):
            b = [prior[k] / 9 / sum(kernel[m][k] * a[m] for m in range(9)) for k in range(3)]
            a = [1 / 9 / sum(kernel[m][k] * b[k] for k in range(3)) for m in range(9)]
        scaled = [[kernel[m][k] * a[m] * b[k] for k in range(3)] for m in range(9)]
        plan = [[value / sum(row) for value in row] for row in scaled]
    found = transported_probabilities(features, logits.requires_grad_(), torch.tensor(prior))
    assert not found.requires_grad
    assert found.tolist() == [pytest.approx(row, abs=2e-3) for row in plan]


def test_classes_without_a_given_graph_are_found_on_one() -> None:
    features, logits, _ = half_of_the_classes(images=6)
    graph_free = agreed_shares(features, logits)
    assert agreed_shares(features, logits, nearest_neighbours(features)).tolist() == graph_free.tolist()
    assert not present_classes(features, logits.requires_grad_())[1].requires_grad
