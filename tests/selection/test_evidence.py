from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from made_up_evidence import EvidenceMaker
from pmtrans.errors import UserError
from pmtrans.selection.arbitration import arbitrate
from pmtrans.selection.evidence import Evidence


def test_evidence_has_no_place_for_target_labels() -> None:
    names = [field.name for field in fields(Evidence)]
    assert [name for name in names if "label" in name] == ["source_labels_N"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target_logits_MK": torch.zeros(37, 4)}, "same two or more classes"),
        ({"target_logits_MK": torch.zeros(36, 5)}, "one row per image"),
        ({"source_labels_N": torch.zeros(22, dtype=torch.long)}, "one row per image"),
        ({"target_logits_MK": torch.zeros(0, 5), "target_features_MD": torch.zeros(0, 8)}, "at least one"),
        ({"target_features_MD": torch.full((37, 8), torch.nan)}, "target_features_MD holds values"),
    ],
)
def test_evidence_that_does_not_belong_together_is_refused_in_one_line(
    made_up: EvidenceMaker, change: dict[str, torch.Tensor], said: str
) -> None:
    with pytest.raises(UserError, match=said) as refused:
        replace(made_up(), **change)
    assert "\n" not in str(refused.value)


def test_neutral_ground_is_ones_own_predictions_on_the_features_of_another(made_up: EvidenceMaker) -> None:
    mine, other = made_up(seed=0), made_up(seed=1, width=6)
    moved = mine.on_features_of(other)
    for name in ("source_logits_NK", "source_labels_N", "target_logits_MK"):
        assert torch.equal(getattr(moved, name), getattr(mine, name)), name
    for name in ("source_features_ND", "target_features_MD"):
        assert torch.equal(getattr(moved, name), getattr(other, name)), name
    assert moved.source_train_features_PD is None  # of another width, and of a model that made no prediction here
    assert mine.source_train_features_PD is not None


def test_the_ground_decides_the_judgement_and_only_the_neutral_one_is_right() -> None:
    """Adaptation tears ten images out of the first class and bends its own features so that it seems right.

    Twenty images a class, in clusters. Before: all right. After: ten of class 0 are called 1. On features that
    no training has bent, these ten lie among images that both call 0, so all ten count against adaptation; on the
    adapted model's own they lie among images of class 1.
    """
    truth = torch.arange(60) % 3
    torn = (truth == 0).nonzero().flatten()[:10]
    called = truth.clone()
    called[torn] = 1
    noise = 0.05 * torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    source_labels = torch.arange(30) % 3

    def model(calls: torch.Tensor, places: torch.Tensor) -> Evidence:
        logits, eye = 5.0 * torch.eye(3)[calls], torch.eye(3)
        return Evidence(eye[source_labels], 5.0 * eye[source_labels], source_labels, eye[places] + noise, logits)

    untrained, before, after = model(truth, truth), model(truth, truth), model(called, called)
    neutral = arbitrate(before.on_features_of(untrained), after)
    assert (neutral.for_adapted, neutral.for_baseline) == (0, 10)
    assert neutral.outcome_M[torn].tolist() == [-1] * 10
    assert neutral.gain == pytest.approx(-10 / 60)
    bent = arbitrate(before.on_features_of(after), after)
    assert (bent.for_adapted, bent.for_baseline) == (10, 0)
