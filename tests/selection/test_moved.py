"""Whether a model gained by moving, without source images: what is said at and beside each limit."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest
import torch

from made_up_evidence import EvidenceMaker
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.moved import MovedSignals, choose_moved, judge_moved, read_moved
from pmtrans.selection.signals import PairSignals, read_pair

BETTER = PairSignals(0.1, 30, 10, disputed=0.2, dead=0.0, source_drop=0.0, images=150, classes=5)
WORSE = replace(BETTER, gain=-0.1, better=10, worse=30)


def answer(on_given: PairSignals, on_moved: PairSignals = BETTER) -> str:
    return judge_moved(MovedSignals(on_given, on_moved))[0]


def test_what_both_arbitrations_say_is_said() -> None:
    assert answer(BETTER, BETTER) == "helped"
    assert answer(WORSE, WORSE) == "hurt"
    assert answer(BETTER, WORSE) == answer(WORSE, BETTER) == "cannot tell"


def test_the_reason_has_the_counts_of_both() -> None:
    _, reason = judge_moved(MovedSignals(BETTER, replace(BETTER, better=41, worse=12)))
    assert "30 images changed for the better and 10 for the worse by the features of the given model" in reason
    assert "41 and 12 by those of the moved one" in reason


def test_fewer_than_150_images_are_too_few() -> None:
    few = replace(BETTER, images=149)
    assert judge_moved(MovedSignals(few, few))[0] == "cannot tell"
    assert "149 target images are too few, 150 are needed" in judge_moved(MovedSignals(few, few))[1]
    assert answer(replace(BETTER, images=150)) == "helped"


def test_models_that_differ_on_less_than_two_percent_are_unchanged() -> None:
    assert answer(replace(BETTER, disputed=0.0199)) == "unchanged"
    assert answer(replace(BETTER, disputed=0.02)) == "helped"
    assert "differ on 2.0% of the images only" in judge_moved(MovedSignals(replace(BETTER, disputed=0.0199), BETTER))[1]


def test_classes_that_held_a_fifth_of_the_images_and_died_out_are_harm() -> None:
    dead, reason = judge_moved(MovedSignals(replace(BETTER, dead=0.2), BETTER))
    assert dead == "hurt"
    assert "Classes that held 20% of the target images died out" in reason
    assert answer(replace(BETTER, dead=0.199)) == "helped"


def test_more_than_a_tenth_of_the_anchors_forgotten_is_no_gain() -> None:
    assert answer(replace(BETTER, source_drop=0.1)) == "helped"
    said, reason = judge_moved(MovedSignals(replace(BETTER, source_drop=0.11), BETTER))
    assert said == "cannot tell"
    assert "11% of the images that the given model was surest of" in reason


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"gain": 0.02}, "cannot tell"),  # of two points at most
        ({"gain": 0.021}, "helped"),
        ({"better": 0, "worse": 0}, "cannot tell"),  # no votes
        ({"better": 1, "worse": 0}, "cannot tell"),
        ({"better": 8, "worse": 0}, "helped"),  # 2 / 2^8 = 0.0078
        ({"better": 7, "worse": 0}, "cannot tell"),  # 2 / 2^7 = 0.0156
        ({"better": 20, "worse": 20}, "cannot tell"),
    ],
)
def test_a_side_needs_a_gain_and_votes_that_are_no_chance(change: dict[str, float], expected: str) -> None:
    assert answer(replace(BETTER, **change)) == answer(BETTER, replace(BETTER, **change)) == expected  # type: ignore[arg-type]


def test_a_loss_needs_the_same() -> None:
    assert answer(WORSE, replace(WORSE, gain=-0.02)) == "cannot tell"
    assert answer(WORSE, replace(WORSE, gain=-0.021)) == "hurt"


def test_the_gain_is_the_mean_of_both() -> None:
    both = MovedSignals(replace(BETTER, gain=0.3), replace(BETTER, gain=-0.1))
    assert both.gain == pytest.approx(0.1)
    with pytest.raises(FrozenInstanceError):
        both.on_given = BETTER  # type: ignore[misc]


def test_each_is_judged_on_its_own_features(made_up: EvidenceMaker) -> None:
    given, other = made_up(targets=60, seed=0), made_up(targets=60, seed=1)
    moved = Evidence(
        other.source_features_ND[: len(given.source_labels_N)], other.source_logits_NK[: len(given.source_labels_N)],
        given.source_labels_N, other.target_features_MD, other.target_logits_MK,
    )  # fmt: skip
    found = read_moved(given, moved)
    assert found.on_given == read_pair(given, moved)
    assert found.on_moved == read_pair(given.on_features_of(moved), moved)
    assert found.on_given.gain != found.on_moved.gain
    assert torch.equal(given.on_features_of(moved).target_features_MD, moved.target_features_MD)


def test_candidates_may_lose_a_tenth_of_the_anchors_and_15_points_of_arbitration() -> None:
    def scores(anchors: float, gain: float, rank: float) -> dict[str, float]:
        others = dict.fromkeys(("entropy", "information_maximisation", "bnm", "class_ami"), rank)
        return {"source_accuracy": anchors, "arbitration": gain, **others}

    first = scores(1.0, 0.0, 1.0)
    assert choose_moved([first, scores(0.91, -0.14, 2.0)]).index == 1
    assert choose_moved([first, scores(0.89, -0.14, 2.0)]).index == 0
    assert choose_moved([first, scores(0.91, -0.16, 2.0)]).index == 0
