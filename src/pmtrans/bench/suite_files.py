"""What a suite leaves in its folder: ``results.csv``, ``table.md``, ``table.csv``, ``table.tex``, after every run.

They are made from the run folders alone, so they tell of all that was ever run there, in an order that does not
depend on what was run when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pmtrans.bench.ablations import ABLATIONS
from pmtrans.bench.execute import FAILURE, RESULT, read_result
from pmtrans.bench.grids import Grid, tables
from pmtrans.bench.jobs import Plan
from pmtrans.bench.rendering import latex, markdown, table_csv
from pmtrans.bench.results import Result, results_csv
from pmtrans.files import write_text


@dataclass(frozen=True)
class Failure:
    """A run that ended with an error, and why."""

    task: str
    method: str
    seed: str
    reason: str


def read_results(out: Path) -> list[Result]:
    """The results of all finished runs in a suite's folder."""
    found = (read_result(path.parent) for path in sorted(out.glob(f"runs/*/*/*/{RESULT}")))
    return [result for result in found if result is not None]


def read_failures(out: Path) -> list[Failure]:
    """The runs that ended with an error and were not yet tried again with success."""
    failures = []
    for path in sorted(out.glob(f"runs/*/*/*/{FAILURE}")):
        task, method, seed = path.parts[-4:-1]
        reason = path.read_text(encoding="utf-8", errors="replace").strip()
        failures.append(Failure(task, method, seed, reason))
    return failures


def write_records(plan: Plan) -> list[Result]:
    """All four files, each whole at any moment."""
    results = _ordered(read_results(plan.out), plan)
    grids = suite_tables(results, plan)
    write_text(plan.out / "results.csv", results_csv(results))
    write_text(plan.out / "table.md", markdown(grids) + _remarks(plan, results))
    write_text(plan.out / "table.csv", table_csv(grids))
    write_text(plan.out / "table.tex", latex(grids))
    return results


def suite_tables(results: Sequence[Result], plan: Plan) -> tuple[Grid, ...]:
    """The ablation that was asked for, then the suite's own table, then any other ablation that is there in full."""
    shown: dict[str, list[Result]] = {}
    for name, variants in plan.ablations.items():
        labels = {entry: label for label, entry in variants.items()}
        part = [replace(result, method=labels[result.method]) for result in results if result.method in labels]
        part.sort(key=lambda result, order=tuple(variants): order.index(result.method))  # type: ignore[misc]
        if part and (name == plan.ablation or {result.method for result in part} == set(variants)):
            shown[name] = part
    ablated = {entry for name in shown for entry in plan.ablations[name].values()}
    own = [result for result in results if "=" not in result.method or result.method not in ablated]
    grids = {name: _titled(tables(part, ABLATIONS[name].paper), f", {name}") for name, part in shown.items()}
    asked = grids.pop(plan.ablation, ()) if plan.ablation else ()
    return (*asked, *tables(own), *(grid for others in grids.values() for grid in others))


def _titled(grids: Sequence[Grid], ending: str) -> tuple[Grid, ...]:
    return tuple(replace(grid, title=grid.title + ending) for grid in grids)


def _remarks(plan: Plan, results: Sequence[Result]) -> str:
    done = {(result.task, result.method, result.seed) for result in results}
    missing = sum((job.task, job.method, job.seed) not in done for job in plan.jobs)
    lines = [f"\n{missing} of {len(plan.jobs)} runs are not done.\n"] if missing else []
    for failure in read_failures(plan.out):
        lines.append(f"- failed: {failure.task}, {failure.method}, seed {failure.seed}: {failure.reason}\n")
    return "\n".join(lines)


def _ordered(results: Sequence[Result], plan: Plan) -> list[Result]:
    """By method as listed (those of earlier calls after it), task as in the paper, and seed."""

    def key(result: Result) -> tuple[int, str, int, str, int]:
        method = plan.methods.index(result.method) if result.method in plan.methods else len(plan.methods)
        task = plan.tasks.index(result.task) if result.task in plan.tasks else len(plan.tasks)
        return method, result.method, task, result.task, result.seed

    return sorted(results, key=key)
