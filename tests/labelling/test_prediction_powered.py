"""Prediction-powered inference: against its formula in plain loops, and by simulated surveys."""

from __future__ import annotations

import numpy as np
import pytest

from pmtrans.labelling.prediction_powered import prediction_powered, tuned_power
from pmtrans.labelling.sampled_accuracy import Design, measure_designed, wilson


def test_the_accuracy_is_that_of_the_formula() -> None:
    right = [True, False, True, True, False, True]
    f = [0.9, 0.3, 0.8, 0.6, 0.5, 0.7]
    mean_y, mean_f = 4 / 6, sum(f) / 6
    covariance = sum((y - mean_y) * (p - mean_f) for y, p in zip(right, f, strict=True)) / 5
    power = min(1.0, covariance / (sum((p - mean_f) ** 2 for p in f) / 5))
    expected = power * 0.55 + sum(y - power * p for y, p in zip(right, f, strict=True)) / 6
    accuracy, low, high = prediction_powered(right, f, 0.55, 1000, 0.9)
    assert accuracy == pytest.approx(expected)
    assert low < accuracy < high


def test_predictions_that_say_nothing_leave_wilsons_interval() -> None:
    right = [True, True, False, True] * 5
    accuracy, low, high = prediction_powered(right, [0.5] * 20, 0.5, 10**9, 0.95)
    assert (accuracy, low, high) == pytest.approx((0.75, *wilson(15, 20)), abs=1e-6)


def test_three_labels_are_too_few_to_tune_with() -> None:
    assert tuned_power([1.0, 0.0, 1.0], [0.9, 0.1, 0.8]) == 0.0


def test_a_target_that_is_labelled_whole_is_known() -> None:
    assert prediction_powered([True, False], [0.9, 0.2], 0.55, 2, 0.95) == (0.5, 0.5, 0.5)


def test_nothing_is_known_without_a_label() -> None:
    assert prediction_powered([], [], 0.5, 100, 0.95)[1:] == (0.0, 1.0)


@pytest.mark.parametrize("count", [10, 25, 50])
@pytest.mark.parametrize("bias", [0.0, 0.25])
def test_it_is_unbiased_covers_the_truth_and_is_shorter_than_labels_alone(count: int, bias: float) -> None:
    """A target of 1,000 images whose predicted probabilities are informative, and too high where biased."""
    random = np.random.default_rng(0)
    probability = random.beta(1.2, 0.6, 1000)
    truth = random.random(1000) < probability
    probability = np.minimum(probability + bias, 1.0)
    found, held, widths, without = [], 0, [], []
    for _ in range(600):
        drawn = random.choice(1000, count, replace=False)
        accuracy, low, high = prediction_powered(
            truth[drawn].tolist(), probability[drawn].tolist(), float(probability.mean()), 1000, 0.9
        )
        found.append(accuracy)
        held += low <= truth.mean() <= high
        widths.append(high - low)
        plain = wilson(int(truth[drawn].sum()), count, 0.9)
        without.append(plain[1] - plain[0])
    assert np.mean(found) == pytest.approx(truth.mean(), abs=0.015)
    assert held / 600 > 0.86
    assert np.mean(widths) < np.mean(without)


def test_a_design_with_probabilities_is_measured_with_them() -> None:
    right = {f"d{i}": i % 4 != 0 for i in range(12)}
    images = dict.fromkeys(right, ("drawn", 10.0))
    probabilities = {path: (0.9 if ok else 0.3, 0.8) for path, ok in right.items()}
    plain, powered = measure_designed(right, Design(images)), measure_designed(right, Design(images, probabilities))
    assert plain is not None
    assert powered is not None
    assert plain.accuracy == pytest.approx(0.75)
    # y and f move together without exception, so lambda is 1: 0.8 + mean(y - f) = 0.8 + 0.75 - 0.75
    assert powered.accuracy == pytest.approx(0.8)
    assert powered.high - powered.low < plain.high - plain.low
