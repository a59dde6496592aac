"""When a method may look at the target under the untrained backbone too."""

from __future__ import annotations

import pytest
import torch

from pmtrans.selection.evidence import Evidence
from pmtrans.training.finished import Finished
from pmtrans.training.train import untrained_is_close


def stage(right: int, has_evidence: bool = True) -> Finished:
    """Of ten held-out images of two classes, so many are right."""
    labels = torch.tensor([0, 1] * 5)
    called = torch.where(torch.arange(10) < right, labels, 1 - labels)
    logits = torch.nn.functional.one_hot(called, 2).float()
    evidence = Evidence(torch.zeros(10, 3), logits, labels, torch.zeros(4, 3), torch.zeros(4, 2))
    return Finished(0, 1.0, None, [], "", evidence if has_evidence else None)


@pytest.mark.parametrize(
    ("probe", "source_only", "expected"), [(8, 9, True), (8, 10, True), (7, 10, False), (9, 7, True)]
)
def test_the_untrained_backbone_is_looked_at_where_it_tells_the_source_apart(
    probe: int, source_only: int, expected: bool
) -> None:
    assert untrained_is_close(stage(probe), stage(source_only)) == expected


def test_without_a_comparison_the_pretrained_backbone_is_trusted() -> None:
    assert untrained_is_close(stage(5), None)
    assert untrained_is_close(stage(5, has_evidence=False), stage(10))
    assert not untrained_is_close(None, None)  # another process: the main one decides
