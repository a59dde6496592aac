"""``pmtrans auto``: the best model that a given time allows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pmtrans.cli.completion import complete_recipe, complete_setting

_AS_FLAGS = {
    "data.source": "--source", "data.target": "--target", "data.target_labels": "--target-labels", "seed": "--seed",
    "method.name": "`pmtrans train --method`",
}  # fmt: skip


def auto(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[section.key=value]...",
            autocompletion=complete_setting,
            help="Any setting, such as `data.image_size=128`; it is that of all trainings.",
            show_default=False,
        ),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="Labelled images: a folder of class folders, a list file or a table; several times: all of them.",
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
        Path, typer.Option(help="The run folder. The same command resumes in it.", show_default=False)
    ] = ...,  # type: ignore[assignment]
    time: Annotated[
        str, typer.Option("--time", help="The budget, sessions that were killed included: `20m`, `1h`, `1h30m`.")
    ] = "1h",
    root: Annotated[
        str | None, typer.Option(help="Folder that the paths of list files and tables start from.", show_default=False)
    ] = None,
    cache: Annotated[
        str | None, typer.Option(help="A folder for a cache of resized images.", show_default=False)
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="A timm transformer with one patch embedding.", show_default=False)
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="`none`, `timm`, `hf-hub:ORG/NAME`, or a safetensors / pth file.", show_default=False),
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            help="A YAML file of settings, or a packaged recipe: `office-31/deit`.",
            autocompletion=complete_recipe,
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all trainings.")] = 0,
    device: Annotated[
        str | None, typer.Option(help="`cpu`, `cuda`, `cuda:1`, `mps`; default: a GPU if any.", show_default=False)
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin again in `--out`.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Train as many strong methods as the time allows, judge each without target labels, and ship the best.

    A linear probe and a source-only model come first, then PMTrans, then others from the same source stage. OUT
    is a run folder for every other verb, with leaderboard.csv and comparison.html in it.

    Example:

        pmtrans auto --source photos/shop --target photos/phone --out runs/phone --time 1h
    """
    from pmtrans.automatic.budget import parse_time
    from pmtrans.automatic.folder import COMPARISON, LEADERBOARD, refuse_unless_ours
    from pmtrans.cli.early import require_settings
    from pmtrans.config import settings_from_flags
    from pmtrans.errors import ConfigError, one_line

    budget = parse_time(time)
    refuse_unless_ours(out)

    flags = settings_from_flags(root=root, cache=cache, backbone=backbone, weights=weights, device=device)
    domains = settings_from_flags(source=source or None, target=target, target_labels=target_labels, seed=seed)
    require_settings(recipe, overrides or [], {**flags, **domains})
    for key in (override.partition("=")[0].strip() for override in overrides or ()):
        if key in _AS_FLAGS:
            raise ConfigError(f"Give {_AS_FLAGS[key]} instead of {key!r}.")
    from pmtrans.automatic.auto import auto as run_auto
    from pmtrans.automatic.leaderboard import leaderboard_table
    from pmtrans.bench.entry import SharedSettings
    from pmtrans.cli.ending import closing_lines
    from pmtrans.cli.running import interruptible
    from pmtrans.progress import readable_time

    with interruptible(out):
        outcome = run_auto(
            SharedSettings(recipe, tuple(overrides or ()), flags, {}), domains, out, budget, overwrite, quiet
        )
    if not quiet:
        from rich.console import Console

        console = Console(highlight=False, emoji=False)
        console.print(leaderboard_table(outcome.rows))
        for line in closing_lines(outcome.summary, out):
            console.print(line, markup=False, soft_wrap=True)
        pages = [name for name in (LEADERBOARD, COMPARISON) if (out / name).is_file()]
        console.print(
            f"All models side by side: {' and '.join(pages)} in {one_line(out)}", markup=False, soft_wrap=True
        )
        console.print(f"{readable_time(outcome.seconds)} of {readable_time(budget)} used.", markup=False)
