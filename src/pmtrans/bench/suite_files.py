"""The files of a suite, rewritten after every run: ``results.csv``, ``table.md``, ``table.csv``, ``table.tex``.

They are made from the run folders alone, so they cover all runs in the suite's folder, in an order that does not depend
on when they were run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pmtrans.bench.ablations import ABLATIONS
from pmtrans.bench.differences_table import differences_table
from pmtrans.bench.execute import FAILURE, RESULT, read_result
from pmtrans.bench.grids import Grid, tables
from pmtrans.bench.jobs import INCOMPLETE, Suite
from pmtrans.bench.paired_differences import Pair
from pmtrans.bench.rendering import escape_markdown, latex, markdown, table_csv
from pmtrans.bench.results import OWN_MEASURES, Result, results_csv
from pmtrans.files import write_text

STARTS = {
    "source": "at the end of the source stage of their task and seed",
    "average": "half-way between probe and source-only model where that classifier lags behind its clusters, else at "
    "the end of the source stage",
    "probe": "at the pretrained backbone with the probe's head",
    "adapted": "at the adapted model of another run",
    "pretrained": "at the pretrained backbone with a random head",
}


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
    """Runs that failed and have not succeeded since."""
    failures = []
    for path in sorted(out.glob(f"runs/*/*/*/{FAILURE}")):
        task, method, seed = path.parts[-4:-1]
        reason = path.read_text(encoding="utf-8", errors="replace").strip()
        failures.append(Failure(task, method, seed, reason))
    return failures


def write_records(suite: Suite) -> list[Result]:
    """Write all four files, each atomically."""
    results = _ordered(read_results(suite.out), suite)
    grids = _titled(suite_tables(results, suite), " (incomplete copy)" if suite.problems else "")
    write_text(suite.out / "results.csv", results_csv(results))
    parts = [markdown(grids), _starts(suite), _differences(results, suite.reference), _remarks(suite, results)]
    write_text(suite.out / "table.md", "\n".join(part.strip("\n") + "\n" for part in parts if part))
    write_text(suite.out / "table.csv", table_csv(grids))
    write_text(suite.out / "table.tex", latex(grids))
    return results


def suite_tables(results: Sequence[Result], suite: Suite) -> tuple[Grid, ...]:
    """The requested ablation, then the suite's own table, then other ablations that are complete."""
    included: dict[str, list[Result]] = {}
    for name, variants in suite.ablations.items():
        labels = {entry: label for label, entry in variants.items()}
        part = [replace(result, method=labels[result.method]) for result in results if result.method in labels]
        part.sort(key=lambda result, order=tuple(variants): order.index(result.method))  # type: ignore[misc]
        if part and (name == suite.ablation or {result.method for result in part} == set(variants)):
            included[name] = part
    ablated = {entry for name in included for entry in suite.ablations[name].values()}
    own = [result for result in results if "=" not in result.method or result.method not in ablated]
    grids = {name: _titled(tables(part, ABLATIONS[name].paper), f", {name}") for name, part in included.items()}
    requested = grids.pop(suite.ablation, ()) if suite.ablation else ()
    return (*requested, *tables(own), *(grid for others in grids.values() for grid in others))


def _titled(grids: Sequence[Grid], ending: str) -> tuple[Grid, ...]:
    return tuple(replace(grid, title=grid.title + ending) for grid in grids)


def _starts(suite: Suite) -> str:
    """Where the methods of the table start, in words."""
    starts: dict[str, list[str]] = {}
    for job in suite.jobs:
        if job.config.method["name"] != "source_only":
            starts.setdefault(job.config.train.start, []).append(job.method)
    whose = {start: "All methods start" if len(starts) == 1 else f"{', '.join(dict.fromkeys(methods))}: start"
             for start, methods in starts.items()}  # fmt: skip
    return "".join(f"{escape_markdown(who)} {STARTS[start]} (train.start={start}).\n" for start, who in whose.items())


def _differences(results: Sequence[Result], reference: str) -> str:
    """Of every method to the reference; source-only runs that are not in the suite are those that others began with."""
    measures: dict[str, dict[str, dict[Pair, float]]] = {}
    for name in ("label-free", "last"):
        values = measures.setdefault(name, {})
        for result in results:
            if (value := OWN_MEASURES[name](result)) is not None:
                values.setdefault(result.method, {})[result.task, result.seed] = value
        if reference == "source_only" and reference not in values:
            stages = {(one.task, one.seed): 100 * one.source_only for one in results if one.source_only is not None}
            values[reference] = stages
    methods = list(dict.fromkeys(result.method for result in results))
    known = {name: values for name, values in measures.items() if values.get(reference)}
    return "\n".join(differences_table(known, methods, reference))


def _remarks(suite: Suite, results: Sequence[Result]) -> str:
    done = {(result.task, result.method, result.seed) for result in results}
    missing = sum((job.task, job.method, job.seed) not in done for job in suite.jobs)
    lines = [f"\n{missing} of {len(suite.jobs)} runs are not done.\n"] if missing else []
    if suite.problems:
        lines.append(f"\n{INCOMPLETE[0].upper()}{INCOMPLETE[1:]}: {'; '.join(suite.problems)}.\n")
    for failure in read_failures(suite.out):
        lines.append(f"- failed: {failure.task}, {failure.method}, seed {failure.seed}: {failure.reason}\n")
    return "\n".join(lines)


def _ordered(results: Sequence[Result], suite: Suite) -> list[Result]:
    """Sorted by method as listed (those of earlier calls last), task as in the paper, and seed."""

    def key(result: Result) -> tuple[int, str, int, str, int]:
        method = suite.methods.index(result.method) if result.method in suite.methods else len(suite.methods)
        task = suite.tasks.index(result.task) if result.task in suite.tasks else len(suite.tasks)
        return method, result.method, task, result.task, result.seed

    return sorted(results, key=key)
