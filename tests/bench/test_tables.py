"""Results laid out as the paper does, compared with numbers worked out by hand."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pytest

from pmtrans.bench.grids import Cell, Grid, Result, results_csv, tables
from pmtrans.bench.paper import table
from pmtrans.bench.rendering import markdown

SWIN = "swin_base_patch4_window7_224.ms_in22k"
VIT = "vit_base_patch16_224.augreg_in21k"


def result(
    task: str,
    seed: int = 0,
    selected: float | None = None,
    *,
    suite: str = "office-31",
    method: str = "pmtrans",
    backbone: str = SWIN,
    last: float | None = None,
    oracle: float | None = None,
    per_class_mean: float | None = None,
    seconds: float | None = None,
) -> Result:
    return Result(suite, task, method, backbone, seed, selected, last, oracle, per_class_mean, seconds)


def line(grid: Grid, *labels: str) -> dict[str, Cell | None]:
    (found,) = [line for line in grid.lines if line.labels == labels]
    return dict(zip(grid.columns, found.cells, strict=True))


def test_results_are_written_one_run_a_line_with_the_agreed_header() -> None:
    text = results_csv([result("A2W", 3, 0.875, last=0.5, oracle=1.0, seconds=12.5)])
    assert text == (
        "suite,task,method,backbone,seed,selected,last,oracle,per_class_mean,seconds,probe,source_only,memory\n"
        f"office-31,A2W,pmtrans,{SWIN},3,0.875,0.5,1.0,,12.5,,,\n"
    )


def test_a_name_with_a_comma_stays_one_field() -> None:
    text = results_csv([result("A2W", suite='my "own", suite')])
    assert next(csv.DictReader(io.StringIO(text)))["suite"] == 'my "own", suite'


def test_a_cell_is_mean_and_sample_deviation_over_seeds() -> None:
    (grid,) = tables([result("A2W", 0, 0.80), result("A2W", 1, 0.90), result("A2W", 2, 0.85)])
    cell = line(grid, "pmtrans", SWIN, "label-free")["A2W"]
    assert cell is not None
    assert cell.value == pytest.approx(85.0)
    assert cell.deviation == pytest.approx(5.0)  # sqrt((25 + 25 + 0) / 2)


def test_one_seed_has_no_deviation() -> None:
    (grid,) = tables([result("A2W", 0, 0.80)])
    assert line(grid, "pmtrans", SWIN, "label-free")["A2W"] == Cell(80.0)


def test_the_average_spreads_over_the_seeds_that_ran_every_task() -> None:
    runs = [
        result("A2W", 0, 0.80),
        result("D2W", 0, 0.90),  # seed 0: mean 85
        result("A2W", 1, 0.84),
        result("D2W", 1, 0.90),  # seed 1: mean 87
        result("A2W", 2, 0.88),  # seed 2 is not done
    ]
    (grid,) = tables(runs)
    cell = line(grid, "pmtrans", SWIN, "label-free")["Avg of 2"]
    assert cell is not None
    assert cell.value == pytest.approx((84.0 + 90.0) / 2)
    assert cell.deviation == pytest.approx(math.sqrt(2))


def test_a_task_that_one_method_lacks_leaves_its_cell_and_average_empty() -> None:
    (grid,) = tables([result("A2W", 0, 0.8), result("D2W", 0, 0.9), result("A2W", 0, 0.5, method="source_only")])
    cells = line(grid, "source_only", SWIN, "label-free")
    assert cells == {"A2W": Cell(50.0), "D2W": None, "Avg of 2": None}


def test_a_run_recorded_twice_counts_once_as_it_was_last() -> None:
    (grid,) = tables([result("A2W", 0, 0.1), result("A2W", 0, 0.8)])
    assert line(grid, "pmtrans", SWIN, "label-free")["A2W"] == Cell(80.0)


def test_all_measures_are_lines_and_a_measure_without_a_value_is_none() -> None:
    (grid,) = tables([result("A2W", 0, 0.5, last=0.25, oracle=0.75, per_class_mean=0.125, seconds=90.0)])
    ours = {row.labels[2]: row.cells[0] for row in grid.lines if row.labels[1] == SWIN}
    assert ours == {
        "label-free": Cell(50.0),
        "last": Cell(25.0),
        "oracle": Cell(75.0),
        "per-class mean": Cell(12.5),
        "time (min)": Cell(1.5),
    }
    (grid,) = tables([result("A2W", 0, 0.5)])
    assert [row.labels[2] for row in grid.lines] == ["label-free", "paper"]


def test_the_paper_stands_below_with_its_average_where_all_tasks_were_run() -> None:
    tasks = list(table("office-31").tasks)
    (grid,) = tables([result(task, 0, 0.5) for task in reversed(tasks)])
    assert grid.columns == ("A2W", "D2W", "W2D", "A2D", "D2A", "W2A", "Avg")
    values = [cell.value for cell in line(grid, "pmtrans", "Swin-Base", "paper").values() if cell]
    assert values == [99.5, 99.4, 100.0, 99.8, 86.7, 86.5, 95.3]
    assert grid.notes == ()


def test_the_paper_is_averaged_over_the_same_tasks_where_only_some_were_run() -> None:
    (grid,) = tables([result("A2W", 0, 0.5), result("D2A", 0, 0.5)])
    cell = line(grid, "pmtrans", "Swin-Base", "paper")["Avg of 2"]
    assert cell is not None
    assert cell.value == pytest.approx((99.5 + 86.7) / 2)


def test_an_erratum_of_the_paper_is_marked_and_explained_only_where_it_shows() -> None:
    def runs(tasks: tuple[str, ...]) -> list[Result]:
        return [result(task, 0, 0.5, method="source_only", backbone=VIT) for task in tasks]

    (grid,) = tables(runs(table("office-31").tasks))
    assert line(grid, "source_only", "ViT-Base", "paper")["Avg"] == Cell(91.1, marked=True)
    assert len(grid.notes) == 1
    assert "90.4" in grid.notes[0]
    (grid,) = tables(runs(("A2W", "D2W")))
    assert grid.notes == ()


def test_methods_are_grouped_by_backbone_as_in_the_paper() -> None:
    pairs = [("pmtrans", SWIN), ("pmtrans", VIT), ("source_only", SWIN)]
    (grid,) = tables([result("A2W", 0, 0.5, method=method, backbone=backbone) for method, backbone in pairs])
    own = [row.labels[:2] for row in grid.lines if row.labels[2] == "label-free"]
    assert own == [("pmtrans", SWIN), ("source_only", SWIN), ("pmtrans", VIT)]


def test_visda_sets_its_one_task_beside_the_mean_over_classes() -> None:
    (grid,) = tables([result("train2validation", 0, 0.9, suite="visda-2017", per_class_mean=0.85)])
    assert grid.columns == ("train2validation",)
    assert line(grid, "pmtrans", "Swin-Base", "paper (per-class mean)") == {"train2validation": Cell(88.0)}


def test_domainnet_is_a_grid_of_averages_and_a_matrix_per_measure() -> None:
    own = {task: index / 100 for index, task in enumerate(table("domainnet").tasks)}
    grids = tables([result(task, 0, own[task], suite="domainnet", seconds=60.0) for task in own])
    assert [grid.title for grid in grids] == [
        "domainnet",
        f"domainnet: pmtrans, {SWIN}, label-free",
        "domainnet: pmtrans, Swin-Base, paper",
    ]
    summary, ours, paper = grids
    mean = line(summary, "pmtrans", SWIN, "label-free")["Avg"]
    assert mean is not None
    assert mean.value == pytest.approx(14.5)  # of 0 to 29
    assert line(summary, "pmtrans", "Swin-Base", "paper")["Avg"] == Cell(52.4)
    first = line(ours, "clp")
    assert first["clp"] is None
    assert [round(cell.value) for cell in first.values() if cell] == [0, 1, 2, 3, 4, 2]
    column = [
        cell.value for cell in (line(ours, source)["clp"] for source in ("inf", "pnt", "qdr", "rel", "skt")) if cell
    ]
    assert column == pytest.approx([5, 10, 15, 20, 25])
    border = line(ours, "Avg")
    assert border["clp"] is not None
    assert border["clp"].value == pytest.approx(15)
    assert [cell.value for cell in line(paper, "qdr").values() if cell] == [
        54.6,
        17.4,
        38.9,
        49.5,
        41.0,
        40.3,
    ]
    assert [cell.value for cell in line(paper, "Avg").values() if cell] == [
        67.9,
        30.7,
        59.1,
        27.0,
        72.8,
        56.9,
        52.4,
    ]


def test_an_ablation_stands_beside_the_table_of_its_name() -> None:
    tasks = table("office-home").tasks
    runs = [
        result(task, 0, 0.5, suite="office-home", method=method) for task in tasks for method in ("beta-1-1", "learned")
    ]
    (grid,) = tables(runs, paper="beta")
    assert line(grid, "beta-1-1", "Swin-Base", "paper")["Avg"] == Cell(88.1)
    assert line(grid, "learned", "Swin-Base", "paper")["A2C"] == Cell(81.3)


def test_an_ablation_on_another_benchmark_than_the_papers_has_nothing_beside_it() -> None:
    (grid,) = tables([result("A2W", 0, 0.5, method="beta-1-1")], paper="beta")
    assert [row.labels[2] for row in grid.lines] == ["label-free"]


def test_a_suite_that_the_paper_does_not_know_keeps_its_own_order() -> None:
    (first, second) = tables(
        [result("z2a", 0, 0.5, suite="mine"), result("A2W", 0, 0.5), result("b", 0, 0.25, suite="mine")]
    )
    assert first.title == "mine"
    assert first.columns == ("z2a", "b", "Avg")
    assert line(first, "pmtrans", SWIN, "label-free")["Avg"] == Cell(37.5)
    assert second.title == "office-31"


def test_no_results_give_no_tables() -> None:
    assert tables([]) == ()


def test_a_table_says_what_a_method_that_is_not_reproduced_lacks() -> None:
    (grid,) = tables([result("A2W", 0, 0.8), result("A2W", 0, 0.7, method="fixbi")])
    assert len(grid.remarks) == 1
    assert grid.remarks[0].startswith("fixbi is not reproduced: ")
    assert "adversarially trained" in grid.remarks[0]
    assert grid.remarks[0] in markdown([grid])
    (grid,) = tables([result("A2W", 0, 0.8)])
    assert grid.remarks == ()


def test_memory_is_a_line_of_its_own_and_no_matrix() -> None:
    runs = [replace(result("A2W", seed, 0.8), memory=memory) for seed, memory in ((0, 100_000_000), (1, 300_000_000))]
    (grid,) = tables(runs)
    cell = line(grid, "pmtrans", SWIN, "memory (MB)")["A2W"]
    assert cell is not None
    assert cell.value == 200.0
    assert cell.deviation == pytest.approx(math.sqrt(2) * 100)
    matrices = tables([replace(result("clp2inf", 0, 0.8, suite="domainnet"), memory=10**9)])
    assert not [grid.title for grid in matrices if "memory" in grid.title]
