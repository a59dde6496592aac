from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from made_up_evidence import EvidenceMaker
from pmtrans.errors import UserError
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
