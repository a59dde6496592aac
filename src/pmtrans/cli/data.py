"""``pmtrans data``: where to get the paper's benchmarks, and whether a copy is complete."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pmtrans.bench.benchmark_copy import BenchmarkCopy
    from pmtrans.bench.benchmarks import Benchmark


def data(
    name: Annotated[
        str | None,
        typer.Argument(metavar="BENCHMARK", help="A benchmark; without it, all are listed.", show_default=False),
    ] = None,
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="The copy to verify.", show_default=False)
    ] = None,
) -> None:
    """Show where to get a benchmark and how to lay it out; given a folder, verify the copy in it.

    Nothing is downloaded. Exit code 0: the copy is complete; 1: something is missing; 2: wrong arguments.

    Example: pmtrans data office-31 datasets/office31
    """
    from pmtrans.bench.benchmark_copy import find_benchmark
    from pmtrans.bench.benchmarks import BENCHMARKS, benchmark_named

    if name is None:
        for benchmark in BENCHMARKS.values():
            domains = ", ".join(domain.name for domain in benchmark.domains)
            typer.echo(f"{benchmark.name:12} {benchmark.classes:3} classes; {domains}")
        return
    if folder is None:
        _print_instructions(benchmark_named(name))
        return
    copy = find_benchmark(name, folder)
    _print_copy(copy)
    if copy.problems:
        raise typer.Exit(1)


def _print_instructions(benchmark: Benchmark) -> None:
    typer.echo(f"{benchmark.title}: {benchmark.classes} classes")
    typer.echo(f"get it from  {benchmark.address}")
    typer.echo(f"lay it out   {benchmark.layout}")
    for domain in benchmark.domains:
        counts = " (cleaned version) or ".join(str(count) for count in domain.images)
        typer.echo(f"  {domain.name:12} {'/'.join(domain.codes):16} {counts} images")
    typer.echo(f"tasks        {', '.join(benchmark.task_names())}")
    if any(domain.splits for domain in benchmark.domains):
        typer.echo("protocols    whole: adapt to and evaluate on the whole target domain")
        typer.echo("             split: train on the train lists, evaluate on the target's test list")
    typer.echo(f"verify it    pmtrans data {benchmark.name} FOLDER")


def _print_copy(copy: BenchmarkCopy) -> None:
    from pmtrans.errors import one_line

    for found in copy.domains:
        where = "not found" if found.spec is None else one_line(found.spec)
        splits = ", with split lists" if found.has_splits else ""
        typer.echo(f"{found.domain.name:12} {found.images:7} images  {where}{splits}")
    for problem in copy.problems:
        typer.echo(f"incomplete: {problem}")
    if not copy.problems:
        typer.echo(f"{copy.benchmark.title} is complete; tasks: {', '.join(copy.benchmark.task_names())}")
