from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from made_up_evidence import EvidenceMaker
from pmtrans.errors import UserError
from pmtrans.selection.arbitration import Arbitration, arbitrate
from pmtrans.selection.evidence import Evidence


def _distance(image: Tensor, witness: tuple[Tensor, int]) -> float:
    return -float(witness[0] @ image)


def plain_arbitration(baseline: Evidence, adapted: Evidence, neighbours: int) -> list[int]:
    """The same judgement, image by image, in plain Python."""
    called = baseline.target_logits_MK.argmax(1).tolist()
    claimed = adapted.target_logits_MK.argmax(1).tolist()
    unit = [row / row.norm() for row in baseline.target_features_MD.double()]
    witnesses = [(unit[i], c) for i, c in enumerate(called) if c == claimed[i]]
    witnesses += [
        (row / row.norm(), label)
        for row, label in zip(baseline.source_features_ND.double(), baseline.source_labels_N.tolist(), strict=True)
    ]
    outcome = []
    for i, (before, after) in enumerate(zip(called, claimed, strict=True)):
        distance = partial(_distance, unit[i])
        votes = [c for _, c in sorted(witnesses, key=distance)[:neighbours]]
        balance = (votes.count(after) > votes.count(before)) - (votes.count(after) < votes.count(before))
        had = called.count(before)
        kept = sum(a == b == before for a, b in zip(called, claimed, strict=True))
        if balance > 0 and had >= 3 and kept <= 0.1 * had:
            balance = 0
        outcome.append(balance if before != after else 0)
    return outcome


@pytest.mark.parametrize("chunk", [1, 5, 1000])
@pytest.mark.parametrize("neighbours", [1, 10, 500])
def test_arbitration_equals_the_plain_judgement(made_up: EvidenceMaker, neighbours: int, chunk: int) -> None:
    baseline = made_up(targets=60)
    noise = torch.randn(60, 5, generator=torch.Generator().manual_seed(3))
    adapted = replace(baseline, target_logits_MK=baseline.target_logits_MK + 4 * noise)
    outcome = arbitrate(baseline, adapted, neighbours=neighbours, chunk=chunk).outcome_M.tolist()
    assert outcome == plain_arbitration(baseline, adapted, neighbours)
    assert any(outcome)


def test_on_two_grounds_the_judgement_is_the_mean_of_both(made_up: EvidenceMaker) -> None:
    baseline = made_up(targets=60)
    noise = torch.randn(60, 5, generator=torch.Generator().manual_seed(3))
    adapted = replace(baseline, target_logits_MK=baseline.target_logits_MK + 4 * noise)
    generator = torch.Generator().manual_seed(4)
    source, target = (torch.randn(len(rows), 7, generator=generator)
                      for rows in (baseline.source_labels_N, baseline.target_logits_MK))  # fmt: skip
    both = replace(baseline, source_ground_NG=source, target_ground_MG=target)
    second = replace(baseline, source_features_ND=source, target_features_MD=target)
    alone = (plain_arbitration(one, adapted, 10) for one in (baseline, second))
    plain = [(a + b) / 2 for a, b in zip(*alone, strict=True)]
    judged = arbitrate(both, adapted)
    assert judged.outcome_M.tolist() == plain
    assert judged.gain == pytest.approx(sum(plain) / 60)
    assert judged.for_adapted == sum(one > 0 for one in plain)
    assert adapted.on_features_of(both).target_ground_MG is target
    assert both.on_features_of(baseline).target_ground_MG is None
    absent = torch.tensor([True, False, False, False, False])
    kept = both.without_source_of(absent)
    assert kept.source_ground_NG is not None
    assert torch.equal(kept.source_ground_NG, source[baseline.source_labels_N != 0])
    with pytest.raises(UserError, match="of both domains"):
        replace(both, source_ground_NG=None)
    with pytest.raises(UserError, match="one row per image"):
        replace(both, target_ground_MG=target[:-1])


def test_a_model_does_not_differ_from_itself(made_up: EvidenceMaker) -> None:
    judged = arbitrate(made_up(), made_up())
    assert (judged.gain, judged.for_adapted, judged.for_baseline, judged.p_value) == (0.0, 0, 0, 1.0)


def test_total_disagreement_leaves_the_source_as_the_only_witness(made_up: EvidenceMaker) -> None:
    baseline = made_up()
    adapted = replace(baseline, target_logits_MK=baseline.target_logits_MK.roll(1, dims=1))
    assert arbitrate(baseline, adapted).gain < 0


def test_the_sign_test_counts_decided_images_only() -> None:
    judged = Arbitration(torch.tensor([1] * 9 + [-1] + [0] * 30))
    assert judged.gain == pytest.approx(8 / 40)
    assert judged.p_value == pytest.approx(2 * (1 + 10) / 2**10)


def test_wiping_out_a_class_wins_nothing(made_up: EvidenceMaker) -> None:
    baseline = made_up(targets=80)
    calls = baseline.target_predictions_M()
    gone = int(calls.bincount(minlength=5).argmax())
    second = baseline.target_logits_MK.topk(2, dim=1).indices[:, 1]
    adapted = replace(baseline, target_logits_MK=one_hot(torch.where(calls == gone, second, calls), 5).float())
    judged = arbitrate(baseline, adapted)
    assert judged.for_adapted == 0


def test_evidence_of_other_images_is_refused(made_up: EvidenceMaker) -> None:
    with pytest.raises(UserError, match="different images"):
        arbitrate(made_up(targets=10), made_up(targets=11))
