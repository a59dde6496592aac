from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from pmtrans.selection.estimate import estimate_accuracy
from pmtrans.selection.estimators import (
    agreement_on_the_line,
    on_the_line,
    scaled_fourth_norm,
    scaled_nuclear_norm,
    thresholded_confidence,
)
from simulation import CLASSES, EVEN, simulate


def test_atc_counts_target_images_above_the_source_error_quantile() -> None:
    source = torch.tensor([0.9, 0.2, 0.5, 0.7])  # accuracy 0.5: two lie below the threshold 0.7
    target = torch.tensor([0.69, 0.7, 0.71, 0.1, 0.8])
    assert thresholded_confidence(source, 0.5, target) == pytest.approx(3 / 5)
    assert thresholded_confidence(source, 1.0, target) == pytest.approx(4 / 5)
    assert thresholded_confidence(source, 0.0, target) == 0.0


def test_the_norms_equal_their_definitions() -> None:
    p = torch.randn(40, 5, generator=torch.Generator().manual_seed(0)).double().softmax(1)
    singular = np.linalg.svd(p.numpy(), compute_uv=False)
    assert scaled_nuclear_norm(p) == pytest.approx(singular.sum() / math.sqrt(40 * 5))
    assert scaled_fourth_norm(p) == pytest.approx((sum(v**4 for v in p.flatten().tolist()) / 200) ** 0.25)


@pytest.mark.parametrize("scaled_norm", [scaled_nuclear_norm, scaled_fourth_norm])
def test_uniform_predictions_have_the_norm_of_chance(scaled_norm: Callable[[Tensor], float]) -> None:
    assert scaled_norm(torch.full((40, 5), 0.2).double()) == pytest.approx(0.2, abs=1e-6)


def test_the_line_passes_through_chance_and_source_and_stays_in_range() -> None:
    assert on_the_line(0.8, 0.9, 0.25, 4) == pytest.approx(0.25)
    assert on_the_line(0.8, 0.9, 0.8, 4) == pytest.approx(0.9)
    assert on_the_line(0.8, 0.9, 1.0, 4) == 1.0
    assert on_the_line(0.25, 0.9, 0.7, 4) == 0.25


def test_agreement_moves_accuracy_on_the_probit_scale() -> None:
    expected = norm.cdf(norm.ppf(0.9) + norm.ppf(0.7) - norm.ppf(0.95))
    assert agreement_on_the_line(0.9, 0.95, 0.7) == pytest.approx(expected)
    assert agreement_on_the_line(0.9, 0.7, 0.7) == pytest.approx(0.9)


@pytest.mark.parametrize("displacement", [0.0, 0.2, 0.4])
def test_the_estimate_of_a_source_only_model_is_near_the_truth(displacement: float) -> None:
    world = simulate(EVEN, displacement=displacement)
    estimate = estimate_accuracy(world.baseline)
    assert estimate.accuracy == pytest.approx(world.accuracy(world.baseline), abs=0.15)
    assert 0 <= estimate.low <= estimate.accuracy <= estimate.high <= 1


def test_the_estimate_is_not_deceived_by_an_adapted_model_that_is_sure_and_wrong() -> None:
    world = simulate([0.75] + [0.05] * 5)
    calls = world.baseline.target_predictions_M()
    adapted = world.adapted_to(torch.where(calls == 0, torch.arange(len(calls)) % CLASSES, calls))
    truth = world.accuracy(adapted)
    anchored, trusting = estimate_accuracy(adapted, world.baseline), estimate_accuracy(adapted)
    assert abs(anchored.accuracy - truth) < 0.15
    assert trusting.accuracy - truth > 0.4


def test_the_estimate_rises_when_adaptation_helps() -> None:
    world = simulate(EVEN)
    before = estimate_accuracy(world.baseline)
    after = estimate_accuracy(world.adapted_to(world.truth_M), world.baseline)
    assert after.accuracy > before.accuracy + 0.05


def test_more_images_narrow_the_interval_though_the_estimators_stay() -> None:
    few = simulate(EVEN, images=40, displacement=0.2).baseline
    many = replace(
        few,
        target_features_MD=few.target_features_MD.repeat(30, 1),
        target_logits_MK=few.target_logits_MK.repeat(30, 1),
    )
    wide, narrow = estimate_accuracy(few), estimate_accuracy(many)
    assert narrow.parts == pytest.approx(wide.parts)
    assert narrow.accuracy - narrow.low < wide.accuracy - wide.low


def test_the_estimate_repeats_exactly_and_names_its_parts() -> None:
    world = simulate(EVEN, images=50)
    adapted = world.adapted_to(world.truth_M)
    estimate = estimate_accuracy(adapted, world.baseline)
    assert estimate == estimate_accuracy(adapted, world.baseline)
    assert set(estimate.parts) == {
        "average_confidence",
        "atc_confidence",
        "atc_entropy",
        "nuclear_norm",
        "fourth_norm",
        "agreement",
    }
    assert estimate.accuracy == pytest.approx(sum(estimate.parts.values()) / 6)


@pytest.mark.parametrize("images", [1, 2])
def test_a_tiny_target_gets_an_estimate_in_range(images: int) -> None:
    world = simulate(EVEN, images=images)
    estimate = estimate_accuracy(world.adapted_to(world.truth_M), world.baseline)
    assert 0 <= estimate.low <= estimate.accuracy <= estimate.high <= 1
