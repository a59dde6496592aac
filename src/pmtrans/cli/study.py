"""``pmtrans study``: variants compared over tasks and seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pmtrans.cli.engine_flags import Cpus, EngineName, Gpus, Parallel, Quiet, RayAddress


def study(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A YAML file of variants, tasks and seeds, or a packaged study.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option(help="Runs and tables. An interrupted study is resumed.", show_default=False)],
    data: Annotated[
        Path | None,
        typer.Option(help="The folder that the tasks' paths start from; default: that of FILE.", show_default=False),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="`none`, `timm`, `hf-hub:ORG/NAME`, or a file; default: what FILE says.", show_default=False),
    ] = None,
    parallel: Parallel = 1,
    engine: EngineName = "local",
    ray_address: RayAddress = None,
    cpus: Cpus = 1,
    gpus: Gpus = 0,
    quiet: Quiet = False,
) -> None:
    """Compare settings: every variant on every task with every seed, with or without target labels.

    results.csv, table.md and study.svg in OUT are updated after every run. Finished runs are skipped, failed runs are
    retried. Exit code 1: some runs failed.

    Example:

        pmtrans study study.yaml --out runs/study
    """
    from pmtrans.cli.early import require_data
    from pmtrans.config import find_study

    find_study(file)
    if data is not None:
        require_data("--data", data)
    from pmtrans.bench.display import Display
    from pmtrans.bench.engines import create_engine
    from pmtrans.bench.jobs import open_suite
    from pmtrans.bench.study import plan_study, read_study
    from pmtrans.bench.study_records import StudyFiles
    from pmtrans.bench.suite import run_suite
    from pmtrans.cli.running import interruptible

    asked = read_study(file, data, weights)
    planned = plan_study(asked, out)
    open_suite(planned)
    display = Display(quiet)
    runner = create_engine(engine, display, parallel, ray_address, cpus, gpus)
    with interruptible(out):
        failed = run_suite(planned, runner, display, StudyFiles(asked.reference))
    typer.echo((planned.out / "table.md").read_text(encoding="utf-8"), nl=False)
    if failed:
        typer.echo(f"{failed} runs failed; the same command retries them.", err=True)
        raise typer.Exit(1)
