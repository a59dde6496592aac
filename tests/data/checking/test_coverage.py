"""Classes that the target misses are named; classes that are there are not."""

from __future__ import annotations

import numpy as np

from pmtrans.data.checking.gap import missing_classes, unfit_share

CENTRES = np.eye(6) * 4


def features(labels: np.ndarray, seed: int, shift: float = 0.0) -> np.ndarray:
    drawn: np.ndarray = CENTRES[labels] + np.random.default_rng(seed).normal(size=(len(labels), 6)) + shift
    return drawn


def test_absent_classes_are_named_in_spite_of_a_shift() -> None:
    source, present = np.repeat(np.arange(6), 20), np.repeat([0, 2, 3, 5], 30)
    assert missing_classes(features(source, 0), source, features(present, 1, shift=0.5)) == [1, 4]


def test_nothing_is_named_when_all_are_there_or_images_are_few() -> None:
    source, target = np.repeat(np.arange(6), 20), np.repeat(np.arange(6), 30)
    assert missing_classes(features(source, 0), source, features(target, 1)) == []
    few = np.zeros(29, dtype=int)
    assert missing_classes(features(source, 0), source, features(few, 1)) == []


def test_labels_need_not_be_contiguous() -> None:
    source = np.repeat([1, 3, 5], 20)
    target = np.repeat([1, 5], 20)
    assert missing_classes(features(source, 0), source, features(target, 1)) == [3]


def test_images_of_no_source_class_do_not_fit() -> None:
    """Four clusters; the classifier knows three of them."""
    random = np.random.default_rng(0)
    source, target = np.repeat(np.arange(3), 40), np.repeat(np.arange(4), 30)
    rows = [3 * np.eye(4)[labels] + 0.3 * random.standard_normal((len(labels), 4)) for labels in (source, target)]
    assert unfit_share(rows[0], source, rows[1], 0) > 0.2
    assert unfit_share(rows[0], source, rows[1][target < 3], 0) < 0.2
    assert unfit_share(rows[0][:20], source[:20], rows[1], 0) == 0.0
