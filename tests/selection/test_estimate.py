"""What is said of accuracy, with the package's constants and on worlds whose truth is known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from pmtrans.selection.assessment import (
    HALF,
    Change,
    change_to_adapted,
    estimate_adapted,
    estimate_source_model,
    read_constants,
    shipped_constants,
    write_constants,
)
from pmtrans.selection.atc import negative_entropy, thresholded_confidence
from pmtrans.selection.calibration import cautious_temperature, fit_temperature
from pmtrans.selection.estimate import estimate_accuracy
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.signals import ModelSignals, PairSignals, read_model, read_pair
from simulation import CLASSES, EVEN, simulate


def test_atc_counts_target_images_above_the_source_error_quantile() -> None:
    source = torch.tensor([0.9, 0.2, 0.5, 0.7])  # accuracy 0.5: two lie below the threshold 0.7
    target = torch.tensor([0.69, 0.7, 0.71, 0.1, 0.8])
    assert thresholded_confidence(source, 0.5, target) == pytest.approx(3 / 5)
    assert thresholded_confidence(source, 1.0, target) == pytest.approx(4 / 5)
    assert thresholded_confidence(source, 0.0, target) == 0.0


def test_negative_entropy_is_that_of_each_image() -> None:
    expected = [0.5 * math.log(0.5) + 2 * 0.25 * math.log(0.25), 0.0]
    assert negative_entropy(torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])).tolist() == pytest.approx(expected)


def test_the_temperature_never_sharpens() -> None:
    labels = torch.arange(60) % 3
    easy = 2.0 * torch.eye(3)[labels]  # all right, and unsure of it: the fit would sharpen
    assert fit_temperature(easy, labels) < 1.0
    assert cautious_temperature(easy, labels) == 1.0
    overconfident = 9.0 * torch.eye(3)[torch.where(torch.arange(60) % 4 == 0, (labels + 1) % 3, labels)]
    assert cautious_temperature(overconfident, labels) == fit_temperature(overconfident, labels) > 1.0


def model_signals(**changed: float) -> ModelSignals:
    parts = {"clusters": 0.7, "own_clusters": 0.75, "class_means": 0.8, "agreement": 0.6}
    return ModelSignals({**parts, **changed}, floor=0.0, images=800, classes=31)


def pair_signals(**changed: Any) -> PairSignals:
    base = PairSignals(
        gain=0.1, better=120, worse=40, disputed=0.3, dead=0.0, source_drop=0.0, images=800, classes=31
    )  # fmt: skip
    return replace(base, **changed)


def test_the_estimate_of_a_source_model_is_the_regression_and_its_interval_the_spread() -> None:
    constants = shipped_constants()
    estimate = estimate_source_model(model_signals(), constants)
    line, spread = constants.accuracy, constants.accuracy_spread
    x = [math.log(p / (1 - p)) for p in (0.7, 0.75, 0.8)]
    value = line.intercept + sum(c * v for c, v in zip(line.coefficients, x, strict=True))
    accuracy = 1 / (1 + math.exp(-value))
    sampling = 1 / math.sqrt(800 * accuracy * (1 - accuracy))
    deviation = spread.factor * math.sqrt(spread.base**2 + spread.slope**2 * 31 / 800 + sampling**2)
    assert estimate.accuracy == pytest.approx(accuracy)
    assert estimate.low == pytest.approx(1 / (1 + math.exp(-value + 1.6448536 * deviation)), rel=1e-6)
    assert estimate.high == pytest.approx(1 / (1 + math.exp(-value - 1.6448536 * deviation)), rel=1e-6)
    assert estimate.level == 0.9


def test_the_lower_end_is_at_least_that_of_disagreement_discrepancy() -> None:
    plain = estimate_source_model(model_signals(), shipped_constants())
    between = (plain.low + plain.accuracy) / 2
    raised = estimate_source_model(replace(model_signals(), floor=between), shipped_constants())
    assert raised.low == pytest.approx(between)
    above = estimate_source_model(replace(model_signals(), floor=0.99), shipped_constants())
    assert above.low == above.accuracy == plain.accuracy  # the bound rests on an assumption, and the interval holds


@pytest.mark.parametrize("images", [2_000, 8_000, 100_000])
def test_the_interval_does_not_vanish_with_many_target_images(images: int) -> None:
    """What one task differs from another does not shrink with its images, however many they are."""
    constants = shipped_constants()
    found = estimate_source_model(replace(model_signals(), images=images), constants)
    value = math.log(found.accuracy / (1 - found.accuracy))
    spread = constants.accuracy_spread
    least = 1.6448536 * spread.factor * spread.base
    assert value - math.log(found.low / (1 - found.low)) > least > 0.1


def test_the_hold_out_moves_neither_the_estimate_nor_its_width() -> None:
    """An easy hold-out sharpened the temperature and made estimates 6 to 21 points too high."""
    world = simulate(EVEN, displacement=0.4).baseline
    easy = replace(world, source_logits_NK=3.0 * torch.eye(CLASSES)[world.source_labels_N])
    one, other = (estimate_source_model(replace(read_model(e), floor=0.0), shipped_constants()) for e in (world, easy))
    assert (one.low, one.accuracy, one.high) == pytest.approx((other.low, other.accuracy, other.high))
    assert one.parts["atc_confidence"] != other.parts["atc_confidence"]


def test_arbitration_counts_half_with_few_images() -> None:
    constants = shipped_constants()
    slope = constants.gain.coefficients[0]
    few, many = (change_to_adapted(pair_signals(images=n), 0.6, constants) for n in (HALF, 10**6))
    assert few.gain == pytest.approx(slope * 0.05)
    assert many.gain == pytest.approx(slope * 0.1, rel=1e-3)
    assert few.deviation > many.deviation


def test_a_collapse_loses_what_was_right_in_the_classes_that_died() -> None:
    change = change_to_adapted(pair_signals(gain=0.02, dead=0.5), 0.6, shipped_constants())
    assert change.gain == pytest.approx(-0.3)


def test_the_estimate_of_an_adapted_model_is_that_before_plus_the_change() -> None:
    before = estimate_source_model(model_signals(), shipped_constants())
    after = estimate_adapted(before, Change(0.07, 0.03), pair_signals(), shipped_constants())
    assert after.accuracy == pytest.approx(before.accuracy + 0.07)
    assert after.low < before.accuracy < after.accuracy < after.high
    assert after.parts == {"before_adaptation": before.accuracy, "change": 0.07}


def test_constants_survive_a_file() -> None:
    assert read_constants(write_constants(shipped_constants())) == shipped_constants()
    assert "full trainings of A2D, A2W" in shipped_constants().rests_on


def test_certainty_is_never_estimated() -> None:
    found = estimate_source_model(model_signals(clusters=1.0, own_clusters=1.0, class_means=1.0), shipped_constants())
    assert found.accuracy == pytest.approx(0.99)
    assert found.high == 1.0
    found = estimate_source_model(model_signals(clusters=0.0, own_clusters=0.0, class_means=0.0), shipped_constants())
    assert found.accuracy == pytest.approx(0.01)
    assert found.low == 0.0


@pytest.mark.parametrize("displacement", [0.2, 0.4, 0.45])
def test_the_interval_of_a_source_only_model_holds_the_truth(displacement: float) -> None:
    world = simulate(EVEN, displacement=displacement)
    estimate = estimate_accuracy(world.baseline)
    assert estimate.low <= world.accuracy(world.baseline) <= estimate.high


def test_the_estimate_is_not_deceived_by_an_adapted_model_that_is_sure_and_wrong() -> None:
    world = simulate([0.75] + [0.05] * 5)
    calls = world.baseline.target_predictions_M()
    adapted = world.adapted_to(torch.where(calls == 0, torch.arange(len(calls)) % CLASSES, calls))
    estimate = estimate_accuracy(adapted, world.baseline)
    confidence = adapted.target_logits_MK.softmax(1).max(1).values.mean().item()
    assert confidence - world.accuracy(adapted) > 0.4
    assert estimate.accuracy < min(confidence, estimate_accuracy(world.baseline).accuracy) - 0.3


def test_the_estimate_rises_when_adaptation_helps() -> None:
    world = simulate(EVEN)
    before = estimate_accuracy(world.baseline)
    after = estimate_accuracy(world.adapted_to(world.truth_M), world.baseline)
    assert after.accuracy > before.accuracy + 0.05


@pytest.mark.parametrize("images", [1, 2])
def test_a_tiny_target_gets_an_estimate_in_range(images: int) -> None:
    world = simulate(EVEN, images=images)
    estimate = estimate_accuracy(world.adapted_to(world.truth_M), world.baseline)
    assert 0 <= estimate.low <= estimate.accuracy <= estimate.high <= 1


def test_signals_read_both_models() -> None:
    world = simulate(EVEN, images=60)
    other = world.adapted_to(world.truth_M)
    parts = read_model(world.baseline, other=other).parts
    assert set(parts) == {
        "average_confidence", "atc_confidence", "atc_entropy", "optimal_transport", "clusters", "own_clusters",
        "class_means", "agreement",
    }  # fmt: skip
    right = world.accuracy(world.baseline)
    assert parts["agreement"] == pytest.approx(right)  # the other model is always right
    pair = read_pair(world.baseline, other)
    assert (pair.images, pair.classes) == (60, CLASSES)
    assert pair.disputed == pytest.approx(1 - right)


def test_a_model_that_calls_everything_one_class_is_not_believed() -> None:
    source_labels = torch.arange(40) % 2
    features = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    logits = torch.tensor([4.0, 0.0]) + 0.1 * features[:, :2]  # every image is of class 0, and all clusters agree
    source = Evidence(features[:40], 4 * torch.eye(2)[source_labels], source_labels, features, logits)
    estimate = estimate_accuracy(source)
    assert estimate.parts["clusters"] == 1.0
    assert estimate.accuracy == pytest.approx(0.5)
    assert estimate.low == 0.0
    assert estimate.high > 0.9
    later = replace(source, target_logits_MK=4 * torch.eye(2)[torch.arange(200) % 2])
    moved = estimate_accuracy(later, source)
    assert moved.low == 0.0
    assert moved.high >= estimate.high

    # a source of which as many are of that class says that the target may well be so
    skewed = replace(source, source_labels_N=(torch.arange(40) < 2).long())
    assert estimate_accuracy(skewed).accuracy == pytest.approx(0.95)
    both = replace(source, target_logits_MK=4 * torch.eye(2)[(torch.arange(200) < 30).long()])
    assert "balance" not in estimate_accuracy(both).parts
