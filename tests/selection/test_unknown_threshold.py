"""From when on an answer is ``unknown``: the score, its threshold, and what a few labels change."""

from __future__ import annotations

import math

import pytest
import torch

from pmtrans.selection.unknown_threshold import (
    UnknownThreshold,
    best_threshold,
    calibrate_unknown,
    fit_unknown,
    harmonic_mean,
)


def test_a_score_is_logistic_in_the_largest_logit() -> None:
    scores = UnknownThreshold(-2.0, 0.5).scores(torch.tensor([[3.0, 1.0], [2.0, 0.0], [0.0, -1.0]]))
    expected = [1 / (1 + math.exp(-(-largest + 2.0) / 0.5)) for largest in (3.0, 2.0, 0.0)]
    assert scores.tolist() == pytest.approx(expected)


def test_without_labels_the_threshold_lies_between_two_groups() -> None:
    low, high = [4.0, 5.0, 6.0], [0.0, 1.0]
    fitted = fit_unknown(torch.tensor([[value, -9.0] for value in (*low, *high)]))
    assert fitted.threshold == pytest.approx(-2.5)
    within = (sum((v - 5) ** 2 for v in low) + sum((v - 0.5) ** 2 for v in high)) / 5
    assert fitted.scale == pytest.approx(within / 4.5)


def test_where_all_images_are_equal_none_is_unknown() -> None:
    logits = torch.ones(4, 3)
    assert (fit_unknown(logits).scores(logits) < 0.5).all()


def test_the_harmonic_mean_counts_a_known_image_called_unknown_as_wrong() -> None:
    labels = torch.tensor([0, 1, 1, 0, -1, -1, -1])
    predicted = torch.tensor([0, 1, 0, 0, 0, 1, 1])
    called = torch.tensor([False, True, False, False, True, True, False])
    known, recall = 2 / 4, 2 / 3
    expected = (known, recall, 2 * known * recall / (known + recall))
    assert harmonic_mean(predicted, called, labels) == pytest.approx(expected)
    assert harmonic_mean(predicted[:4], called[:4], labels[:4]) == (0.5, 0.0, 0.0)


def test_labels_choose_the_threshold_that_separates_them() -> None:
    logits = torch.tensor([[9.0, 0.0], [0.0, 8.0], [3.0, 0.0], [0.0, 2.0]])
    labels = torch.tensor([0, 1, -1, -1])
    assert best_threshold(logits, labels) == pytest.approx(-5.5)
    moved = calibrate_unknown(UnknownThreshold(-1.0, 1.0), logits, labels)
    trust = 2 / 12
    assert moved.threshold == pytest.approx((1 - trust) * -1.0 + trust * -5.5)


def test_labels_of_one_kind_change_nothing() -> None:
    start = UnknownThreshold(-1.0, 1.0)
    assert calibrate_unknown(start, torch.randn(3, 2), torch.tensor([0, 1, 1])) == start
    assert calibrate_unknown(start, torch.randn(3, 2), torch.tensor([-1, -1, -1])) == start
