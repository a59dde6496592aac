"""The proxy A-distance is 0 for one domain, 2 for two that never meet, and between for the rest."""

from __future__ import annotations

import numpy as np
import pytest

from pmtrans.data.checking.gap import proxy_a_distance


def features(shift: float, count: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, 6))
    drawn[:, 0] += shift
    return drawn


def test_one_domain_split_in_two_is_near_zero() -> None:
    assert proxy_a_distance(features(0, 400, 0), features(0, 400, 1), seed=0) < 0.25


def test_domains_that_never_meet_are_two_apart() -> None:
    assert proxy_a_distance(features(0, 100, 0), features(30, 100, 1), seed=0) == pytest.approx(2)


def test_two_shifted_normals_are_as_far_as_theory_says() -> None:
    # The best threshold between N(0, 1) and N(2, 1) errs with probability P(N(0, 1) > 1) = 0.1587.
    expected = 2 * (1 - 2 * 0.1587)
    assert proxy_a_distance(features(0, 1000, 0), features(2, 1000, 1), seed=0) == pytest.approx(expected, abs=0.1)


def test_a_large_domain_is_not_a_large_distance() -> None:
    assert proxy_a_distance(features(0, 900, 0), features(0, 60, 1), seed=0) < 0.6


def test_it_is_a_function_of_the_seed() -> None:
    source, target = features(0, 50, 0), features(1, 40, 1)
    assert proxy_a_distance(source, target, seed=3) == proxy_a_distance(source, target, seed=3)


def test_too_few_images_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 10"):
        proxy_a_distance(features(0, 50, 0), features(0, 5, 1), seed=0)
