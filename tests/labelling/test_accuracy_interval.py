from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from pmtrans.labelling.sampled_accuracy import Design, measure_designed, measure_random_sample, wilson


@pytest.mark.parametrize(("right", "count"), [(0, 1), (1, 1), (7, 20), (20, 20), (0, 50), (499, 1000)])
def test_wilson_is_the_interval_of_scipy(right: int, count: int) -> None:
    expected = binomtest(right, count).proportion_ci(0.95, method="wilson")
    assert wilson(right, count) == pytest.approx((expected.low, expected.high))


def test_without_an_image_nothing_is_known() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_plain_images_count_the_same() -> None:
    measured = measure_random_sample([True, True, False, True])
    assert measured.accuracy == 0.75
    assert (measured.low, measured.high) == wilson(3, 4)


def design(chosen: int, drawn: int, total: int) -> Design:
    weight = (total - chosen) / drawn if drawn else 0.0
    return Design(
        {f"c{i}": ("chosen", 1.0) for i in range(chosen)} | {f"d{i}": ("drawn", weight) for i in range(drawn)}
    )


def test_chosen_images_stand_for_themselves_and_drawn_ones_for_the_rest() -> None:
    right = {"c0": False, "c1": True, "d0": True, "d1": True, "d2": False, "d3": True}
    measured = measure_designed(right, design(2, 4, 102))
    assert measured is not None
    low, high = wilson(3, 4)
    assert measured.accuracy == pytest.approx((1 + 100 * 0.75) / 102)
    assert measured.low == pytest.approx((1 + 100 * low) / 102)
    assert measured.high == pytest.approx((1 + 100 * high) / 102)


def test_chosen_images_without_a_label_widen_the_interval() -> None:
    drawn = {"d0": True, "d1": False}
    full = measure_designed({"c0": True, "c1": False, **drawn}, design(2, 2, 12))
    part = measure_designed({"c0": True, **drawn}, design(2, 2, 12))
    assert full is not None
    assert part is not None
    assert part.low == pytest.approx(full.low)
    assert part.high == pytest.approx(full.high + 1 / 12)


def test_chosen_images_alone_say_nothing_of_the_target() -> None:
    assert measure_designed({"c0": True, "c1": True}, design(2, 2, 12)) is None


def test_a_target_that_is_labelled_whole_has_no_interval_left() -> None:
    measured = measure_designed({"c0": True, "c1": False, "c2": True}, design(3, 0, 3))
    assert measured is not None
    assert (measured.low, measured.accuracy, measured.high) == pytest.approx((2 / 3, 2 / 3, 2 / 3))


def test_the_estimate_is_unbiased_though_hard_images_are_chosen_and_the_interval_holds() -> None:
    """A target of 400 images, 320 of them right; the 20 chosen are nearly all wrong."""
    random = np.random.default_rng(0)
    truth = np.zeros(400, dtype=bool)
    truth[80:] = True
    chosen = [*range(18), 398, 399]
    rest = np.setdiff1d(np.arange(400), chosen)
    estimates, held, naive = [], 0, []
    for _ in range(2000):
        drawn = random.choice(rest, 20, replace=False)
        right = {f"c{i}": bool(truth[n]) for i, n in enumerate(chosen)}
        right |= {f"d{i}": bool(truth[n]) for i, n in enumerate(drawn)}
        measured = measure_designed(right, design(20, 20, 400))
        assert measured is not None
        estimates.append(measured.accuracy)
        held += measured.low <= 0.8 <= measured.high
        naive.append(sum(right.values()) / 40)
    assert np.mean(estimates) == pytest.approx(0.8, abs=0.006)
    assert held / 2000 > 0.93
    assert np.mean(naive) < 0.55
