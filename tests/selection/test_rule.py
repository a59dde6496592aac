from __future__ import annotations

import math

import pytest

from pmtrans.errors import UserError
from pmtrans.selection.rule import choose, disagreement


def scores(
    im: float,
    *,
    source: float = 0.9,
    bnm: float | None = None,
    ami: float | None = None,
    entropy: float = -0.5,
) -> dict[str, float]:
    return {
        "source_accuracy": source,
        "entropy": entropy,
        "information_maximisation": im,
        "bnm": im if bnm is None else bnm,
        "class_ami": im if ami is None else ami,
    }


def test_the_best_mean_rank_is_chosen() -> None:
    history = [scores(1.0, ami=0.3), scores(1.2, ami=0.5), scores(1.1, ami=0.4)]
    choice = choose(history)
    assert (choice.index, choice.mean_ranks) == (1, {0: 3.0, 1: 1.0, 2: 2.0})


def test_ranks_count_not_sizes() -> None:
    """One validator's leap (bnm, far ahead for the first) does not outweigh two others."""
    history = [scores(1.0, bnm=100.0, ami=0.1), scores(1.1, bnm=0.2, ami=0.2)]
    assert choose(history).index == 1


def test_ties_go_to_the_later_evaluation() -> None:
    assert choose([scores(1.0), scores(1.0), scores(0.5)]).index == 1
    assert choose([scores(1.0, ami=0.1), scores(0.9, ami=0.2)], validators=("bnm", "class_ami")).index == 1


def test_an_evaluation_that_lost_the_source_is_refused() -> None:
    history = [scores(1.0, source=0.95), scores(2.0, source=0.85), scores(1.5, source=0.93)]
    choice = choose(history)
    assert (choice.index, choice.admitted) == (2, (0, 2))
    assert "1 for lost source accuracy" in choice.explanation
    assert choose(history, tolerance=0.2).index == 1


def test_a_collapsed_evaluation_is_refused_even_if_every_validator_loves_it() -> None:
    healthy = scores(math.log(10) - 0.5, entropy=-0.5)  # mean prediction over ten classes
    collapsed = scores(math.log(3), bnm=9.0, ami=9.0, entropy=0.0)  # over three, and certain
    choice = choose([healthy, collapsed])
    assert (choice.index, choice.admitted) == (0, (0,))
    assert "1 for collapse" in choice.explanation


def test_an_evaluation_that_harmed_the_target_is_refused() -> None:
    history = [
        scores(1.0) | {"arbitration": 0.0},
        scores(1.2) | {"arbitration": 0.02},
        scores(2.0) | {"arbitration": -0.08},
    ]
    choice = choose(history)
    assert (choice.index, choice.admitted) == (1, (0, 1))
    assert "1 for harm" in choice.explanation
    assert choose(history, gain_tolerance=0.1).index == 2


def test_arbitration_does_not_rank_what_it_admits() -> None:
    history = [scores(1.0) | {"arbitration": 0.12}, scores(1.1) | {"arbitration": 0.11}]
    assert choose(history).index == 1


def test_a_score_that_is_not_a_number_is_never_preferred() -> None:
    history = [scores(math.nan, bnm=math.nan, ami=math.nan), scores(0.1)]
    assert choose(history).index == 1
    assert choose([scores(0.1), scores(1.0, source=math.nan)]).index == 0


def test_a_validator_that_some_evaluation_lacks_is_left_out() -> None:
    with_ami, without = scores(0.1, ami=1.0), scores(0.2)
    del without["class_ami"]
    choice = choose([with_ami, without])
    assert choice.index == 1
    assert "class_ami" not in choice.explanation


def test_without_any_validator_the_last_admitted_is_kept() -> None:
    assert choose([{"source_accuracy": 0.9}, {"source_accuracy": 0.9}]).index == 1
    assert choose([{}, {}, {}]).index == 2


def test_the_explanation_is_one_line_and_the_history_must_not_be_empty() -> None:
    assert "\n" not in choose([scores(1.0)]).explanation
    with pytest.raises(UserError, match="no evaluation"):
        choose([])


def test_disagreement_names_each_choice_and_how_often_orders_differ() -> None:
    history = [{"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 2.0}, {"a": 3.0, "b": 2.5}]
    found = disagreement(history)
    assert found.choices == {"a": 2, "b": 0}
    assert found.spread == 2
    assert found.discordance == pytest.approx(2 / 3)  # of the pairs (0,1), (0,2), (1,2) the last agrees


def test_validators_that_agree_show_no_disagreement() -> None:
    found = disagreement([scores(0.1), scores(0.2)], validators=("bnm", "class_ami"))
    assert (found.spread, found.discordance) == (0, 0.0)
