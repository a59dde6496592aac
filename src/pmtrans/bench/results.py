"""The result of one run of a suite, and the CSV file of all runs."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields


@dataclass(frozen=True)
class Result:
    """One run. Accuracies are fractions, None where the target has no labels to measure them with."""

    suite: str
    task: str
    method: str
    backbone: str
    seed: int
    selected: float | None  # of the checkpoint that the label-free validator chose
    last: float | None
    oracle: float | None  # of the best checkpoint by target labels: never used to choose
    per_class_mean: float | None
    seconds: float | None


def results_csv(results: Sequence[Result]) -> str:
    """One line per run, accuracies as fractions, empty where unknown."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(Result))
    writer.writerows(astuple(result) for result in results)
    return text.getvalue()
