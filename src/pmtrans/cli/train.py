"""``pmtrans train``: adapt a model from a labelled source to an unlabelled target."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pmtrans.cli.completion import complete_method, complete_recipe, complete_setting


def train(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[section.key=value]...",
            autocompletion=complete_setting,
            help="Any setting, such as `train.epochs=10`.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR",
            help="Labelled images: class folders, a list file, a table or shards (`shop-{000..127}.tar`). Given "
            "several times: all of them, their classes matched by name.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Unlabelled images. Class folders in it are used for evaluation only.", show_default=False),
    ] = None,
    target_labels: Annotated[
        str | None,
        typer.Option(
            help="Labels of some target images, which train: the table that `label-these` writes, a list, or class "
            "folders. Without it, no target label trains anything.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(help="The run folder. An interrupted run in it is resumed.", show_default=False),
    ] = ...,  # type: ignore[assignment]
    root: Annotated[
        str | None, typer.Option(help="Folder that the paths of list files and tables start from.", show_default=False)
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option(help="A folder for a cache of resized images: later epochs need not decode.", show_default=False),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="A timm transformer, such as `swin_tiny_patch4_window7_224`.", show_default=False),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="`none`, `timm`, `hf-hub:ORG/NAME`, or a safetensors / pth file.", show_default=False),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="A name that `pmtrans methods` lists.", autocompletion=complete_method, show_default=False),
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            help="A YAML file of settings, or a packaged recipe: `office-31/deit`.",
            autocompletion=complete_recipe,
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Same seed, same weights, bit for bit (on a CPU).", show_default=False)
    ] = None,
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
    device: Annotated[
        str | None, typer.Option(help="`cpu`, `cuda`, `cuda:1`, `mps`; default: a GPU if any.", show_default=False)
    ] = None,
    resume: Annotated[
        str,
        typer.Option(metavar="HOW", help="`auto`: the run in `--out`; `never`; or a run or checkpoint to resume."),
    ] = "auto",
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Start from the finished probe and source stage of RUN: another method, another target, or labels.",
            show_default=False,
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Processes (GPUs) of this machine that share each batch; same result up to rounding.",
        ),
    ] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report the memory and time it would take; write nothing.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in `--out`.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
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
