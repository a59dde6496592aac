"""Results of many runs as tables in the paper's layout, next to the paper's numbers.

``tables`` lays results out in grids of cells, ``pmtrans.bench.rendering`` writes grids as text. As in the
paper a benchmark is one grid, methods down and tasks across, and DomainNet is a matrix per method, sources
down and targets across (after a grid of the averages alone).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pmtrans.bench.paper import numbers
from pmtrans.bench.results import (
    COSTS,
    OWN_MEASURES,
    Cell,
    Measure,
    Result,
    paper_measure,
    percent,
    results_csv,
    runs_measure,
)
from pmtrans.methods import METHODS

__all__ = ["Cell", "Grid", "Line", "Result", "results_csv", "tables"]

PAPER_BACKBONES = {"swin": "Swin-Base", "vit": "ViT-Base", "deit": "DeiT-Base"}
Labels = tuple[str, ...]


@dataclass(frozen=True)
class Line:
    """One line of a grid: a label for each stub column, a cell or None for each other column."""

    labels: Labels
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Grid:
    """A table ready to be written; ``notes`` explain the marked cells, ``remarks`` are of whole lines."""

    title: str
    stub: Labels
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def tables(results: Sequence[Result], paper: str | None = None) -> tuple[Grid, ...]:
    """Grids of all suites in ``results``; where a run is recorded twice the last record counts.

    ``paper`` names the paper's table to stand beside (an ablation's, say, whose variants are then the
    methods' names); by default it is that of the suite, if the paper has one.
    """
    suites: dict[str, list[Result]] = {}
    for result in results:
        suites.setdefault(result.suite, []).append(result)
    return tuple(grid for suite in suites for grid in _suite(suite, suites[suite], paper or suite))


def _suite(suite: str, results: Sequence[Result], paper: str) -> list[Grid]:
    benchmark = numbers.table(suite) if suite in numbers.table_names() else None
    order = benchmark.runs if benchmark else ()
    tasks = list(dict.fromkeys(result.task for result in results))
    tasks.sort(key=lambda task: order.index(task) if task in order else len(order))
    average = "Avg" if set(order) <= set(tasks) else f"Avg of {len(tasks)}"

    measures, errata = _measures(results, benchmark, paper)
    if benchmark and any(row.margins for row in benchmark.rows):
        shown = {labels: measure for labels, measure in measures.items() if labels[-1] not in COSTS}
        matrices = [_matrix(suite, tasks, labels, measure, errata) for labels, measure in shown.items()]
        return [
            _methods(suite, {average: tasks}, measures, errata),
            *(grid for grid in matrices if grid.lines),
        ]
    columns = {task: [task] for task in tasks}
    if len(tasks) > 1:
        columns[average] = tasks
    return [_methods(suite, columns, measures, errata)]


def _measures(
    results: Sequence[Result], benchmark: numbers.Table | None, paper: str
) -> tuple[dict[Labels, Measure], dict[Labels, str]]:
    """Measures by method, backbone and name, backbone after backbone as in the paper; errata by the same."""
    groups: dict[str, dict[str, list[Result]]] = {}
    for result in results:
        groups.setdefault(result.backbone, {}).setdefault(result.method, []).append(result)
    measures: dict[Labels, Measure] = {}
    errata: dict[Labels, str] = {}
    for backbone, methods in groups.items():
        every = [run for runs in methods.values() for run in runs]
        measures["linear probe", backbone, "accuracy"] = runs_measure(every, lambda run: percent(run.probe))
        if "source_only" not in methods:  # else it has its own lines
            measures["source stage", backbone, "accuracy"] = runs_measure(every, lambda run: percent(run.source_only))
        for method, runs in methods.items():
            for name, read in OWN_MEASURES.items():
                measures[method, backbone, name] = runs_measure(runs, read)
            row = numbers.paper_row(paper, method, backbone) if benchmark else None
            if benchmark and row and numbers.table(paper).benchmark == benchmark.name:
                name = "paper (per-class mean)" if benchmark.task else "paper"
                labels = (method, PAPER_BACKBONES.get(row.backbone, row.backbone), name)
                measures[labels] = paper_measure(row, benchmark)
                errata[labels] = f"{row.printed} in the paper: {row.errata}"
    return measures, errata


def _methods(
    title: str,
    columns: Mapping[str, Sequence[str]],
    measures: Mapping[Labels, Measure],
    errata: Mapping[Labels, str],
) -> Grid:
    """A line for each measure with at least one value, a column for each set of tasks."""
    lines = _non_empty([Line(labels, tuple(map(measure, columns.values()))) for labels, measure in measures.items()])
    notes = dict.fromkeys(errata[line.labels] for line in lines if _marked(line))
    methods = [line.labels[0].partition(":")[0] for line in lines]
    return Grid(title, ("Method", "Backbone", "Measure"), tuple(columns), lines, tuple(notes), not_reproduced(methods))


def not_reproduced(methods: Sequence[str]) -> tuple[str, ...]:
    """What a reader must know of methods that are not what their authors published."""
    missing = {name: METHODS[name].method.not_reproduced for name in methods if name in METHODS}
    return tuple(f"{name} is not reproduced: {what}." for name, what in missing.items() if what)


def _matrix(suite: str, tasks: Sequence[str], labels: Labels, measure: Measure, errata: Mapping[Labels, str]) -> Grid:
    """Sources down and targets across, bordered by averages over those tasks that were run."""
    sources, targets = (sorted({task.split("2")[side] for task in tasks}) for side in (0, 1))

    def mean(pattern: str) -> Cell | None:
        chosen = [task for task in tasks if fnmatchcase(task, pattern)]
        return measure(chosen) if chosen else None

    lines = [
        Line(
            ("Avg" if source == "*" else source,),
            tuple(mean(f"{source}2{target}") for target in (*targets, "*")),
        )
        for source in (*sources, "*")
    ]
    notes = (errata[labels],) if any(map(_marked, lines)) else ()
    return Grid(f"{suite}: {', '.join(labels)}", ("Source",), (*targets, "Avg"), _non_empty(lines), notes)


def _marked(line: Line) -> bool:
    return any(cell is not None and cell.marked for cell in line.cells)


def _non_empty(lines: Sequence[Line]) -> tuple[Line, ...]:
    return tuple(line for line in lines if any(line.cells))
