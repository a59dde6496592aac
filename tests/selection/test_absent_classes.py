"""A class that the target does not have may die out without a collapse."""

from __future__ import annotations

import torch
from torch.nn.functional import one_hot

from pmtrans.selection.collapse import collapse_signs, share_of_dying, without_classes


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
