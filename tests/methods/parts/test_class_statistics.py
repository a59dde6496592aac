from __future__ import annotations

from collections import Counter

import pytest
import torch

from pmtrans.backbones.head import HeadKind, create_head
from pmtrans.methods.parts.class_runs import ClassPools, paired_runs
from pmtrans.methods.parts.heads import last_linear, through_last_layer
from pmtrans.methods.parts.prototypes import Prototypes, class_means
from pmtrans.pseudo_labels import FeatureBank


def test_class_means_by_hand() -> None:
    features = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [9.0, 9.0]])
    means, counts = class_means(features, torch.tensor([0, 0, 2, -1]), classes=3)
    assert means.tolist() == [[2, 3], [0, 0], [5, 6]]
    assert counts.tolist() == [2, 0, 1]


def test_prototypes_start_at_the_first_mean_then_move_by_momentum() -> None:
    prototypes = Prototypes(3, 1, momentum=0.75)
    prototypes.update(torch.tensor([[4.0], [8.0]]), torch.tensor([1, 1]))
    assert prototypes.means_KF.flatten().tolist() == [0, 6, 0]
    prototypes.update(torch.tensor([[2.0], [5.0]]), torch.tensor([1, 2]))
    assert prototypes.means_KF.flatten().tolist() == [0, 0.75 * 6 + 0.25 * 2, 5]
    assert prototypes.seen_K.tolist() == [False, True, True]
    assert set(prototypes.state_dict()) == {"means_KF", "seen_K"}


def test_bank_keeps_what_was_last_seen() -> None:
    bank = FeatureBank(4, 2, labels_M=torch.full((4,), -1))
    bank.store(torch.tensor([2, 0]), torch.tensor([[1.0, 1], [2, 2]]), labels_M=torch.tensor([5, 6]))
    bank.store(torch.tensor([2]), torch.tensor([[3.0, 3]]), labels_M=torch.tensor([7]))
    assert bank.labels_M.tolist() == [6, -1, 7, -1]
    assert bank.features_MF.tolist() == [[2, 2], [0, 0], [3, 3], [0, 0]]
    assert set(bank.state_dict()) == {"features_MF", "labels_M"}


def test_pools_give_every_image_once_before_any_twice() -> None:
    labels = torch.tensor([0, 1, 0, 1, 0, -1])
    pools = ClassPools(labels, 3, torch.Generator().manual_seed(0))
    assert sorted(pools.draw(0, 3).tolist()) == [0, 2, 4]
    assert sorted(pools.draw(1, 4).tolist()) == [1, 1, 3, 3]
    assert sorted(pools.draw(-1, 6).tolist()) == [0, 1, 2, 3, 4, 5]
    assert not pools.has(2)


@pytest.mark.parametrize("pairs", [24, 25])
def test_runs_hold_one_class_on_both_sides_and_every_class_equally_often(pairs: int) -> None:
    source, target = torch.arange(30) % 4, torch.tensor([0, 0, 1, -1, 1, 2, -1, 2, 2])  # no class 3 in the target
    chosen = paired_runs(source, target, 4, 3, pairs, torch.Generator().manual_seed(5))
    assert chosen.shape == (pairs, 2)
    for run in chosen.split(3):
        labels = {int(label) for label in source[run[:, 0]]}
        assert len(labels) == 1
        if labels != {3}:
            assert {int(label) for label in target[run[:, 1]]} == labels
    counts = Counter(source[chosen[:24, 0]].tolist())
    assert set(counts.values()) == {6}
    again = paired_runs(source, target, 4, 3, pairs, torch.Generator().manual_seed(5))
    assert torch.equal(chosen, again)
    assert not torch.equal(chosen, paired_runs(source, target, 4, 3, pairs, torch.Generator().manual_seed(6)))


@pytest.mark.parametrize(("kind", "width"), [("linear", 6), ("mlp", 12)])
def test_logits_are_the_last_layer_on_what_enters_it(kind: HeadKind, width: int) -> None:
    torch.manual_seed(0)
    head, features = create_head(kind, 6, 3).eval(), torch.randn(4, 6)
    entered, logits = through_last_layer(head, features)
    layer = last_linear(head)
    assert entered.shape == (4, width)
    assert torch.equal(logits, head(features))
    assert torch.allclose(logits, entered @ layer.weight.T + layer.bias, atol=1e-6)
