"""``pmtrans train``: adapt a model from a labelled source to an unlabelled target."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pmtrans.cli.completion import complete_method
from pmtrans.cli.flags import (
    Backbone,
    Cache,
    Device,
    Overwrite,
    Processes,
    Recipe,
    Resume,
    Root,
    Seed,
    Settings,
    Silent,
    Sources,
    Target,
    TargetLabels,
    Weights,
)


def train(
    overrides: Settings = None,
    source: Sources = None,
    target: Target = None,
    target_labels: TargetLabels = None,
    out: Annotated[
        Path,
        typer.Option(help="The run folder. An interrupted run in it is resumed.", show_default=False),
    ] = ...,  # type: ignore[assignment]
    root: Root = None,
    cache: Cache = None,
    backbone: Backbone = None,
    weights: Weights = None,
    method: Annotated[
        str | None,
        typer.Option(help="A name that `pmtrans methods` lists.", autocompletion=complete_method, show_default=False),
    ] = None,
    recipe: Recipe = None,
    seed: Seed = None,
    baseline: Annotated[
        bool | None,
        typer.Option(
            "--baseline/--no-baseline",
            help="Also train a source-only model, to compare with.",
            show_default=False,
            rich_help_panel="Baseline",  # of its own: --no-baseline has a column, for which others would be cut
        ),
    ] = None,
    source_contributions: Annotated[
        bool,
        typer.Option(
            "--source-contributions", help="Of several sources: also fit the probe without each, for the report."
        ),
    ] = False,
    device: Device = None,
    resume: Resume = "auto",
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Start from the finished probe and source stage of RUN: another method, another target, or labels. "
            "With `train.start=adapted` from its adapted model.",
            show_default=False,
        ),
    ] = None,
    processes: Processes = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report the memory and time it would take; write nothing.")
    ] = False,
    overwrite: Overwrite = False,
    quiet: Silent = False,
) -> None:
    """Adapt a model from a labelled source to an unlabelled target.

    Example:

        pmtrans train --source photos/shop --target photos/phone --out runs/phone
    """
    from pmtrans.cli.early import require_run, require_settings
    from pmtrans.cli.ending import show_summary
    from pmtrans.cli.running import interruptible
    from pmtrans.config import settings_from_flags
    from pmtrans.processes.environment import is_main, is_started
    from pmtrans.settings import load_config

    flags = settings_from_flags(
        source=source or None, target=target, target_labels=target_labels, root=root, cache=cache, backbone=backbone,
        weights=weights, method=method, seed=seed, baseline=baseline, device=device,
        source_contributions=source_contributions or None,
    )  # fmt: skip
    require_settings(recipe, overrides or [], flags, None if dry_run else out, needs_weights=not dry_run)
    if from_ is not None:
        require_run(from_)
    config = load_config(recipe, overrides or [], flags)
    if dry_run:
        from pmtrans.cli.plan_table import show_plan
        from pmtrans.progress import Reporter
        from pmtrans.training.dry_run.plan import make_plan

        plan = make_plan(config, Reporter(quiet), processes)
        if is_main():
            show_plan(plan)
        raise typer.Exit(0 if plan.memory.fits else 1)  # a script can test whether it fits
    if processes > 1 and not is_started():
        from pmtrans.processes.launch import launch

        raise typer.Exit(launch(sys.argv[1:], processes))
    from pmtrans.progress import Reporter
    from pmtrans.training.train import train as run_training

    with interruptible(out):
        summary = run_training(config, out, Reporter(quiet), overwrite, resume, from_)
    if is_main() and not quiet:
        show_summary(summary, out)
