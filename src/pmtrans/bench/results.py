"""The result of one run of a suite, the CSV file of all runs, and the numbers in table cells.

A measure gives the mean over a set of tasks: one task gives a cell, the tasks of one source or target a margin of
DomainNet's matrix, all tasks the average. Accuracies are in percent, time is in minutes, memory in MB.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from pmtrans.bench.paper.numbers import AVERAGE, PaperRow, Table
from pmtrans.texts import Count, Fraction, Seconds


@dataclass(frozen=True)
class Result:
    """One run. Accuracies are fractions, None where the target has no labels to measure them with."""

    suite: str
    task: str
    method: str
    backbone: str
    seed: int
    selected: Fraction | None  # of the checkpoint that the label-free validator chose
    last: Fraction | None
    oracle: Fraction | None  # of the best checkpoint by target labels: never used to choose
    per_class_mean: Fraction | None
    seconds: Seconds | None
    probe: Fraction | None = None  # of the linear probe that the run began with
    source_only: Fraction | None = None  # of its source stage
    memory: Count | None = None  # bytes at the peak of the training above those before it


def results_csv(results: Sequence[Result]) -> str:
    """One line per run, accuracies as fractions, empty where unknown."""
    return records_csv(Result, results)


def records_csv(kind: type[Any], records: Sequence[Any]) -> str:
    """Data classes of one kind, a line each under the names of its fields; None is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(kind))
    writer.writerows(astuple(record) for record in records)
    return text.getvalue()


@dataclass(frozen=True)
class Cell:
    """A number, its standard deviation over seeds (None for one seed), and whether it is an erratum of the paper."""

    value: float
    deviation: float | None = None
    marked: bool = False


Measure = Callable[[Sequence[str]], Cell | None]

TIME, MEMORY = "time (min)", "memory (MB)"
COSTS = (TIME, MEMORY)
OWN_MEASURES: Mapping[str, Callable[[Result], float | None]] = {
    "label-free": lambda result: percent(result.selected),
    "last": lambda result: percent(result.last),
    "oracle": lambda result: percent(result.oracle),
    "per-class mean": lambda result: percent(result.per_class_mean),
    TIME: lambda result: None if result.seconds is None else result.seconds / 60,
    MEMORY: lambda result: megabytes(result.memory),
}


def runs_measure(results: Sequence[Result], read: Callable[[Result], float | None]) -> Measure:
    """A measure of our own runs: the mean over tasks of the mean over seeds, None while a task is missing.

    The spread is the sample standard deviation over those seeds that have run all the tasks asked for.
    """
    runs = {(result.task, result.seed): result for result in results}
    values = {key: value for key, run in runs.items() if (value := read(run)) is not None}
    seeds = {seed for _, seed in values}

    def measure(tasks: Sequence[str]) -> Cell | None:
        by_task = [[values[task, seed] for seed in seeds if (task, seed) in values] for task in tasks]
        if not all(by_task):
            return None
        complete = [seed for seed in seeds if all((task, seed) in values for task in tasks)]
        by_seed = [statistics.fmean(values[task, seed] for task in tasks) for seed in complete]
        deviation = statistics.stdev(by_seed) if len(by_seed) > 1 else None
        return Cell(statistics.fmean(map(statistics.fmean, by_task)), deviation)

    return measure


def paper_measure(row: PaperRow, benchmark: Table) -> Measure:
    """A measure of the paper: the number it prints for just these tasks, else the mean of their cells."""
    cells = {task: cell for task, cell in row.cells.items() if cell is not None}
    stated = {frozenset([task]): (task, cell) for task, cell in cells.items()}
    for margin, value in row.margins.items():
        stated[frozenset(task for task in cells if fnmatchcase(task, margin))] = margin, value
    stated[frozenset(benchmark.runs)] = AVERAGE, row.stated_average

    def measure(tasks: Sequence[str]) -> Cell | None:
        if frozenset(tasks) in stated:
            name, value = stated[frozenset(tasks)]
            return Cell(value, marked=name in row.corrections)
        if not all(task in cells for task in tasks):
            return None
        mean = statistics.fmean(cells[task] for task in tasks)
        return Cell(mean, marked=any(task in row.corrections for task in tasks))

    return measure


def megabytes(size: int | None) -> float | None:
    return None if size is None else size / 1e6


def percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction
