"""Folds of a small source."""

from __future__ import annotations

import torch

from pmtrans.evaluation.folds import FOLDS, block_folds


def test_the_images_of_a_class_are_cut_into_blocks_in_their_order() -> None:
    features, labels = torch.arange(24.0)[:, None], torch.arange(24) % 2
    folds = block_folds(features, labels).tolist()
    assert folds[0::2] == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4]
    assert folds[1::2] == [1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 0, 0]  # one further: small classes fill all folds alike


def test_a_class_of_few_images_has_each_in_a_fold_of_its_own() -> None:
    labels = torch.tensor([0, 0, 1, 2, 2, 2])
    assert block_folds(torch.arange(6.0)[:, None], labels).tolist() == [0, 1, 1, 2, 3, 4]


def test_copies_of_an_image_are_in_one_fold() -> None:
    rows = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(30) % 3
    folds = block_folds(torch.cat([rows, rows]), torch.cat([labels, labels]))
    assert folds[:30].tolist() == folds[30:].tolist() == block_folds(rows, labels).tolist()
    assert set(folds.tolist()) == set(range(FOLDS))
