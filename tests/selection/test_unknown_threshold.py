"""From when on an answer is ``unknown``: the score, its threshold, and what a few labels change."""

from __future__ import annotations

import itertools
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
    assert fit_unknown(logits) == UnknownThreshold(-1.0 + 1.0, 1.0)
    assert fit_unknown(logits).share(logits) == 0.0


def test_the_share_of_unknown_images_is_that_above_one_half() -> None:
    at_the_threshold, beyond = [2.0, 0.0], [0.0, -1.0]
    logits = torch.tensor([[3.0, 1.0], at_the_threshold, beyond, [1.0, 0.0]])
    assert UnknownThreshold(-2.0, 0.5).share(logits) == 0.5


def test_two_tight_groups_have_a_scale_above_zero() -> None:
    assert fit_unknown(torch.tensor([[4.0, 0.0], [4.0, 0.0], [1.0, 0.0]])).scale == 1e-3


def test_the_harmonic_mean_counts_a_known_image_called_unknown_as_wrong() -> None:
    labels = torch.tensor([0, 1, 1, 0, -1, -1, -1])
    predicted = torch.tensor([0, 1, 0, 0, 0, 1, 1])
    called = torch.tensor([False, True, False, False, True, True, False])
    known, recall = 2 / 4, 2 / 3
    expected = (known, recall, 2 * known * recall / (known + recall))
    assert harmonic_mean(predicted, called, labels) == pytest.approx(expected)
    assert harmonic_mean(predicted[:4], called[:4], labels[:4]) == (0.5, 0.0, 0.0)
    assert harmonic_mean(predicted[4:], called[4:], labels[4:]) == pytest.approx((0.0, 2 / 3, 0.0))
    assert harmonic_mean(1 - labels[:2], ~called[4:6], labels[:2]) == (0.0, 0.0, 0.0)


def test_labels_choose_the_threshold_that_separates_them() -> None:
    logits = torch.tensor([[9.0, 0.0], [0.0, 8.0], [3.0, 0.0], [0.0, 2.0]])
    labels = torch.tensor([0, 1, -1, -1])
    assert best_threshold(logits, labels) == pytest.approx(-5.5)
    moved = calibrate_unknown(UnknownThreshold(-1.0, 1.0), logits, labels)
    trust = 2 / 12
    assert moved.threshold == pytest.approx((1 - trust) * -1.0 + trust * -5.5)
    further = calibrate_unknown(UnknownThreshold(-4.0, 1.0), logits, labels)
    assert further.threshold == pytest.approx((1 - trust) * -4.0 + trust * -5.5)


def test_the_best_cut_is_that_of_plain_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 3, generator=generator)
    labels = torch.randint(-1, 3, (40,), generator=generator)
    largest = sorted({-max(row) for row in logits.tolist()})
    cuts = [(a + b) / 2 for a, b in itertools.pairwise(largest)]
    means = []
    for cut in cuts:
        known = [(row.index(max(row)) == label, -max(row) > cut) for row, label in
                 zip(logits.tolist(), labels.tolist(), strict=True) if label >= 0]  # fmt: skip
        unknown = [-max(row) > cut for row, label in zip(logits.tolist(), labels.tolist(), strict=True) if label < 0]
        k, u = sum(r and not c for r, c in known) / len(known), sum(unknown) / len(unknown)
        means.append(2 * k * u / (k + u) if k + u else 0.0)
    equal = [cut for cut, mean in zip(cuts, means, strict=True) if mean == pytest.approx(max(means), abs=1e-12)]
    assert best_threshold(logits, labels) == pytest.approx(equal[len(equal) // 2])


def test_of_several_best_cuts_the_middle_one_is_taken() -> None:
    """Known images without an error: every cut among wrong ones of the middle gives the same mean."""
    logits = torch.tensor([[9.0, 0.0], [7.0, 0.0], [6.0, 0.0], [5.0, 0.0], [4.0, 0.0], [1.0, 0.0]])
    labels = torch.tensor([0, 1, 1, 1, 1, -1])  # those called 0 in the middle are wrong on either side of a cut
    assert best_threshold(logits, labels) == pytest.approx(-5.5)
    assert best_threshold(logits[:1], labels[:1]) == -9.0
    assert best_threshold(logits[[0, 5]], labels[[0, 5]]) == pytest.approx(-5.0)


def test_one_label_of_each_kind_counts_a_little() -> None:
    logits, labels = torch.tensor([[9.0, 0.0], [1.0, 0.0]]), torch.tensor([0, -1])
    moved = calibrate_unknown(UnknownThreshold(-1.0, 1.0), logits, labels)
    assert moved.threshold == pytest.approx(10 / 11 * -1.0 + 1 / 11 * -5.0)


def test_labels_of_one_kind_change_nothing() -> None:
    start = UnknownThreshold(-1.0, 1.0)
    assert calibrate_unknown(start, torch.randn(3, 2), torch.tensor([0, 1, 1])) == start
    assert calibrate_unknown(start, torch.randn(3, 2), torch.tensor([-1, -1, -1])) == start
