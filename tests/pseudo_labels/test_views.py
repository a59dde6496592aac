"""Two views side by side."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from pmtrans import large_rows
from pmtrans.large_rows import empty_rows, folder_of
from pmtrans.pseudo_labels import both_views, mean_prediction, views


def test_each_view_is_centred_and_of_length_one() -> None:
    random = torch.Generator().manual_seed(0)
    views = [100 * torch.randn(5, 3, generator=random) + 7, torch.randn(5, 2, generator=random)]
    found = both_views(*views)
    for row in range(5):
        expected = []
        for view in views:
            values = view.tolist()
            inner = [values[row][k] - sum(line[k] for line in values) / 5 for k in range(len(values[0]))]
            length = math.sqrt(sum(value * value for value in inner))
            expected += [value / length for value in inner]
        torch.testing.assert_close(found[row], torch.tensor(expected))


def test_the_mean_prediction_is_that_of_probabilities() -> None:
    random = torch.Generator().manual_seed(0)
    one, other = (3 * torch.randn(4, 3, generator=random) for _ in range(2))
    found = mean_prediction(one, other)
    for row in range(4):
        shares = []
        for logits in (one, other):
            powers = [math.exp(value) for value in logits[row].tolist()]
            shares.append([power / sum(powers) for power in powers])
        expected = [math.log((a + b) / 2) for a, b in zip(*shares, strict=True)]
        torch.testing.assert_close(found[row], torch.tensor(expected))


def test_views_that_lie_on_disk_are_the_same_chunk_by_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    one, other = 9 * torch.randn(11, 3, generator=random) + 4, torch.randn(11, 2, generator=random)
    on_disk = empty_rows(11, 3, torch.device("cpu"), tmp_path, on_disk=0)
    on_disk.copy_(one)
    monkeypatch.setattr(large_rows, "ON_DISK", 0)
    monkeypatch.setattr(views, "CHUNK", 4)
    found = both_views(on_disk, other.requires_grad_())
    assert folder_of(found) == tmp_path
    assert not found.requires_grad
    torch.testing.assert_close(found, both_views(one, other))
