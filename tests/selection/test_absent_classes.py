"""A class that the target does not have may die out without a collapse."""

from __future__ import annotations

import torch
from torch.nn.functional import one_hot

from pmtrans.selection.collapse import collapse_signs, share_of_dying, without_classes
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.signals import read_pair


def test_classes_taken_to_be_absent_neither_warn_nor_count() -> None:
    before = 5.0 * one_hot(torch.arange(40) % 4, 4) + 0.5 * one_hot((torch.arange(40) + 1) % 2, 4)
    after = 5.0 * one_hot(torch.arange(40) % 2, 4).float()
    assert share_of_dying(after, before) == 0.5
    absent = torch.tensor([False, False, True, True])
    masked = without_classes(before, absent)
    assert share_of_dying(after, masked) == 0
    assert torch.isfinite(masked).all()
    assert collapse_signs(after.softmax(1), before.softmax(1))
    assert collapse_signs(after.softmax(1), masked.softmax(1)) == []
    assert without_classes(before, None) is before


def test_the_source_of_absent_classes_is_not_missed() -> None:
    labels = torch.arange(40) % 4
    right = 5.0 * one_hot(labels, 4)
    lost = 5.0 * one_hot(labels % 2, 4)  # the last two classes are given up
    earlier, later = (Evidence(right, logits.float(), labels, right, right) for logits in (right, lost))
    absent = torch.tensor([False, False, True, True])
    assert read_pair(earlier, later).source_drop == 0.5
    assert read_pair(earlier, later, absent_K=absent).source_drop == 0
    assert earlier.without_source_of(absent).source_labels_N.tolist() == [0, 1] * 10
    assert earlier.without_source_of(torch.ones(4, dtype=torch.bool)) is earlier  # nothing would be left
