"""Large matrices lie on disk: same numbers, no file left behind, one line when the disk is full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pmtrans import large_rows, model
from pmtrans.errors import TrainingError
from pmtrans.large_rows import empty_rows, folder_of, rows_beside
from pmtrans.pseudo_labels import both_views, kmeans_pseudo_labels, views

CPU = torch.device("cpu")


def on_disk(values: Tensor, folder: Path) -> Tensor:
    rows = empty_rows(len(values), values.shape[1], CPU, folder, on_disk=1)
    rows.copy_(values)
    return rows


def test_only_what_is_large_and_has_a_folder_is_on_disk_and_its_file_has_no_name(tmp_path: Path) -> None:
    rows = empty_rows(300, 7, CPU, tmp_path / "run", on_disk=4 * 300 * 7)
    assert folder_of(rows) == folder_of(rows[5:]) == tmp_path / "run"
    assert os.listdir(tmp_path / "run") == []
    rows.zero_()[299] = 5.0
    assert rows.sum() == 35.0
    assert folder_of(empty_rows(300, 7, CPU, tmp_path, on_disk=4 * 300 * 7 + 1)) is None
    assert folder_of(empty_rows(300, 7, CPU, None, on_disk=1)) is None
    assert folder_of(rows_beside(rows, 7)) is None, "small beside it stays in memory"


def test_a_full_disk_is_noticed_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(TrainingError, match=r"for 9 images are not available in .*: no space left on device"):
        empty_rows(9, 2, CPU, tmp_path, on_disk=1)
    assert os.listdir(tmp_path) == []


def test_labels_logits_and_views_are_those_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_rows, "ON_DISK", 1)
    monkeypatch.setattr(model, "CHUNK", 64)
    monkeypatch.setattr(views, "CHUNK", 64)
    random = torch.Generator().manual_seed(0)
    features, others = torch.randn(500, 12, generator=random) + 3, torch.randn(500, 5, generator=random)
    head = nn.Linear(12, 4)
    with torch.no_grad():
        expected = head(features)
    stored = on_disk(features, tmp_path)
    logits = model.logits_of(head, stored)
    assert folder_of(logits) == tmp_path
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(both_views(stored, others), both_views(features, others))
    assert folder_of(both_views(stored, others)) == tmp_path
    labels = kmeans_pseudo_labels(features, logits_MK=expected, chunk=64)
    assert torch.equal(kmeans_pseudo_labels(stored, logits_MK=on_disk(expected, tmp_path), chunk=64), labels)
