"""Differences, intervals, rankings and the table of a study, compared with values worked out by hand."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from statistics import fmean

import pytest

from pmtrans.bench.paired_differences import Difference, bootstrap_interval, paired_difference
from pmtrans.bench.study_figure import draw_study
from pmtrans.bench.study_table import MEASURES, StudyRun, StudyText, ranks, study_table


def runs_of(variant: str, scores: list[float], selected: list[float] | None, seconds: float = 10.0) -> list[StudyRun]:
    """Two seeds of A2W, then two of W2A."""
    pairs = [("A2W", 0), ("A2W", 1), ("W2A", 0), ("W2A", 1)]
    runs = []
    for place, score in enumerate(scores):
        accuracy = selected[place] if selected else None
        runs.append(StudyRun(variant, *pairs[place], score, accuracy, accuracy, accuracy, seconds, 960, 25_400_000))
    return runs


LABELLED = [
    *runs_of("paper", [0.50, 0.60, 0.30, 0.40], [0.60, 0.70, 0.40, 0.50], 10.0),
    *runs_of("best", [0.70, 0.60, 0.50, 0.40], [0.62, 0.72, 0.42, 0.52], 20.0),
    *runs_of("a|b", [0.40, 0.50, 0.20, 0.30], [0.70, 0.80, 0.50, 0.60], 30.0),
]
TEXT = StudyText("study", ("paper", "best", "a|b"), "paper", ("A2W", "W2A"), 12)


def all_resampled_means(values: list[float]) -> list[float]:
    """Every equally likely draw, by brute force."""
    return sorted(fmean(draw) for draw in product(values, repeat=len(values)))


@pytest.mark.parametrize("values", [[1.0, 2.0, 6.0], [0.0, 0.5, -3.0, 2.0], [-1.0, -0.2, 0.1, 0.4, 3.0]])
def test_the_interval_is_the_middle_nine_tenths_of_all_resampled_means(values: list[float]) -> None:
    means = all_resampled_means(values)
    low, high = bootstrap_interval(values)
    for bound, share in ((low, 0.05), (high, 0.95)):
        near = [means[round((share + shift) * (len(means) - 1))] for shift in (-0.015, 0.015)]
        assert near[0] - 1e-9 <= bound <= near[1] + 1e-9
    assert bootstrap_interval(values) == (low, high)


def test_three_pairs_have_an_interval_known_exactly() -> None:
    """Of 27 draws of 0, 3, 9 one has the mean 0 (4 %), three have 1 (to 15 %), three 7 (from 85 %), one 9 (96 %)."""
    assert bootstrap_interval([0.0, 3.0, 9.0]) == pytest.approx((1.0, 7.0))


def test_a_difference_is_of_the_same_task_and_seed() -> None:
    variant = {("A2W", 0): 5.0, ("A2W", 1): 7.0, ("W2A", 0): 9.0}
    reference = {("W2A", 0): 1.0, ("A2W", 0): 4.0, ("D2A", 0): 100.0}
    assert paired_difference(variant, reference) == Difference(mean=4.5, pairs=2, interval=None)
    assert paired_difference({("A2W", 3): 1.0}, reference) is None
    three = paired_difference({("A2W", seed): seed + 2.0 for seed in range(3)}, {("A2W", s): s for s in range(3)})
    assert three == Difference(mean=2.0, pairs=3, interval=(2.0, 2.0))


def test_the_two_rankings_stand_side_by_side() -> None:
    table = study_table(LABELLED, TEXT).split("\n\n")
    assert table[2].splitlines() == [
        "| variant | rank without labels | rank by target labels | label-free score | selected | last | oracle "
        "| seconds | images | memory (MB) | runs |",
        "| :-- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
        "| paper | 2 | 3 | 45.0 | 55.0 | 55.0 | 55.0 | 10 | 960 | 25 | 4/4 |",
        "| best | 1 | 2 | 55.0 | 57.0 | 57.0 | 57.0 | 20 | 960 | 25 | 4/4 |",
        r"| a\|b | 3 | 1 | 35.0 | 65.0 | 65.0 | 65.0 | 30 | 960 | 25 | 4/4 |",
    ]
    assert table[3] == r"Chosen without labels: best; best by target labels: a\|b."


def test_differences_to_the_reference_have_their_intervals() -> None:
    """Best is ahead of the paper by 20, 0, 20, 0 points of score: a mean of 0, and of 20, in one of 16 draws (6 %)."""
    table = study_table(LABELLED, TEXT)
    part = table.split("## Paired differences")[1].split("##")[0]
    assert "Difference to paper at the same task and seed" in part
    assert "90% bootstrap interval" in part
    assert "no interval" not in part
    assert "| best | 4 | +10.0 (+0.0 to +20.0) | +2.0 (+2.0 to +2.0) |" in part
    assert r"| a\|b | 4 | -10.0 (-10.0 to -10.0) | +10.0 (+10.0 to +10.0) |" in part
    other = study_table(LABELLED, StudyText("study", TEXT.variants, "best", TEXT.tasks, 12))
    assert "| paper | 4 | -10.0 (-20.0 to +0.0) | -2.0 (-2.0 to -2.0) |" in other


def test_fewer_than_three_pairs_have_no_interval() -> None:
    few = [run for run in LABELLED if run.task == "A2W"]
    part = study_table(few, StudyText("study", TEXT.variants, "paper", ("A2W",), 6)).split("## Paired differences")[1]
    assert "| best | 2 | +10.0 | +2.0 |" in part
    assert "With fewer than 3 pairs no interval can be given." in part


def test_every_task_has_a_table_with_the_spread_over_its_seeds() -> None:
    """Scores 0.5 and 0.6: a mean of 55 and a standard deviation of sqrt(2) x 5 = 7.07 points."""
    part = study_table(LABELLED, TEXT).split("## A2W")[1].split("##")[0]
    assert "| paper | 55.0 ± 7.1 | 65.0 ± 7.1 | 65.0 ± 7.1 | 65.0 ± 7.1 | 10 | 960 | 25 |" in part
    assert "| best | 65.0 ± 7.1 | 67.0 ± 7.1 |" in part


def test_without_target_labels_there_is_the_label_free_ranking_alone() -> None:
    runs = [*runs_of("paper", [0.5, 0.6, 0.3, 0.4], None), *runs_of("best", [0.7, 0.6, 0.5, 0.4], None)]
    table = study_table(runs, StudyText("study", ("paper", "best"), "paper", ("A2W", "W2A"), 8))
    assert "The targets have no labels" in table
    for word in ("selected", "oracle", "rank by target labels"):
        assert word not in table
    assert "| best | 1 | 55.0 | 10 | 960 | 25 | 4/4 |" in table
    assert "Chosen without labels: best." in table


def test_a_variant_with_missing_runs_has_no_rank_yet() -> None:
    runs = [run for run in LABELLED if (run.variant, run.task, run.seed) != ("best", "W2A", 1)]
    assert ranks(runs, TEXT, MEASURES["selected"]) == {"paper": 2, "a|b": 1}
    assert "| best | - | - | 60.0 |" in study_table(runs, TEXT)


def test_equal_means_share_a_rank_and_the_first_place() -> None:
    runs = [
        *runs_of("x", [0.1, 0.2, 0.3, 0.4], None),
        *runs_of("y", [0.4, 0.3, 0.2, 0.1], None),
        *runs_of("z", [0, 0, 0, 0], None),
    ]
    text = StudyText("study", ("x", "y", "z"), "x", ("A2W", "W2A"), 12)
    assert ranks(runs, text, MEASURES["label-free score"]) == {"x": 1, "y": 1, "z": 3}
    assert "Chosen without labels: x, y." in study_table(runs, text)


def test_remarks_come_last_and_an_empty_study_has_a_table_too() -> None:
    text = study_table([], StudyText("study", ("a", "b"), "a", ("A2W",), 2, ("2 of 2 runs are not done.",)))
    assert "| a | - | - | - | 0/1 |" in text
    assert text.endswith("\n\n- 2 of 2 runs are not done.\n")


def test_the_figure_has_a_point_for_every_run_and_a_name_for_every_variant(tmp_path: Path) -> None:
    png, svg = draw_study(LABELLED, TEXT.variants, tmp_path / "study")
    assert png.read_bytes().startswith(b"\x89PNG")
    drawn = svg.read_text()
    assert "accuracy of the label-free choice" in drawn
    for variant in TEXT.variants:
        assert f"<!-- {variant} -->" in drawn
    unlabelled = runs_of("paper", [0.5, 0.6, 0.3, 0.4], None)
    assert "label-free score (%)" in draw_study(unlabelled, ("paper",), tmp_path / "other")[1].read_text()
    assert draw_study([], ("paper",), tmp_path / "empty") == []
