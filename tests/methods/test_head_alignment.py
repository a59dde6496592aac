from __future__ import annotations

import torch
from torch import nn

from pmtrans.methods.method import SourcePass, TargetPass
from pmtrans.methods.parts import head_alignment
from pmtrans.methods.parts.head_alignment import align_head, refit_head


def shifted_domains() -> tuple[SourcePass, TargetPass, torch.Tensor]:
    """Three clusters; in the target all of them are moved the same way, across the source's borders."""
    torch.manual_seed(0)
    centres = torch.tensor([[4.0, 0.0], [0.0, 4.0], [-4.0, -4.0]])
    labels = torch.arange(3).repeat(60)
    source = centres[labels] + 0.5 * torch.randn(180, 2)
    target = centres[labels] + torch.tensor([-2.4, 1.2]) + 0.5 * torch.randn(180, 2)
    return SourcePass(source, torch.zeros(180, 3), labels), TargetPass(target, torch.zeros(180, 3)), labels


def accuracy(head: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> float:
    return float((head(features).argmax(1) == labels).float().mean())


def trained_on_source(source: SourcePass) -> nn.Linear:
    head = nn.Linear(2, 3)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.05)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.cross_entropy(head(source.features_NF), source.labels_N).backward()
        optimiser.step()
    return head


def test_the_border_moves_out_of_the_cluster_that_it_cut() -> None:
    source, target, labels = shifted_domains()
    head = trained_on_source(source)
    before = accuracy(head, target.features_MF, labels)
    for _ in range(5):
        align_head(head, source, target, 0.1)
    assert before < 0.9 < accuracy(head, target.features_MF, labels)
    assert accuracy(head, source.features_NF, labels) > 0.95


def test_the_head_stays_the_same_object_and_gets_no_gradient() -> None:
    source, target, _ = shifted_domains()
    head = nn.Linear(2, 3)
    weight, before = head.weight, head.weight.detach().clone()
    align_head(head, source, target, 0.1)
    assert head.weight is weight
    assert head.weight.grad is None
    assert not torch.equal(before, head.weight)


def test_a_large_domain_is_thinned_evenly() -> None:
    rows = torch.arange(50_001)
    thinned = head_alignment._thinned(rows)
    assert len(thinned) == 16_667
    assert set(thinned.diff().tolist()) == {3}
    assert torch.equal(head_alignment._thinned(rows[:20_000]), rows[:20_000])


def test_a_refitted_head_calls_the_target_as_its_labels_and_keeps_the_source() -> None:
    source, target, labels = shifted_domains()
    head = trained_on_source(source)
    assert accuracy(head, target.features_MF, labels) < 0.9
    for _ in range(5):
        refit_head(head, source, target, labels, 0.1)
    assert accuracy(head, target.features_MF, labels) > 0.95
    assert accuracy(head, source.features_NF, labels) > 0.95


def test_labels_are_thinned_with_their_images() -> None:
    """Twice as many rows as are used, every second one of the other class: only even rows are seen."""
    rows = 2 * head_alignment.ROWS
    features = torch.eye(3)[torch.arange(rows) % 2]
    labels = torch.arange(rows) % 2
    source = SourcePass(torch.eye(3)[2:], torch.zeros(1, 3), torch.tensor([2]))
    head = nn.Linear(3, 3)
    nn.init.zeros_(head.weight), nn.init.zeros_(head.bias)
    refit_head(head, source, TargetPass(features, torch.zeros(rows, 3)), labels, 0.0)
    called = head(torch.eye(3)).detach()
    assert called[0].argmax() == 0
    assert called[2].argmax() == 2
    assert called[1].argmax() != 1
