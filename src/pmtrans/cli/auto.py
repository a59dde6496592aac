"""``pmtrans auto``: the best model that a given time allows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pmtrans.cli.flags import (
    Backbone,
    Cache,
    Device,
    Overwrite,
    Recipe,
    Root,
    Settings,
    Silent,
    Sources,
    Target,
    TargetLabels,
    Weights,
)

_AS_FLAGS = {
    "data.source": "--source", "data.target": "--target", "data.target_labels": "--target-labels", "seed": "--seed",
    "method.name": "`pmtrans train --method`",
}  # fmt: skip


def auto(
    overrides: Settings = None,
    source: Sources = None,
    target: Target = None,
    target_labels: TargetLabels = None,
    out: Annotated[
        Path, typer.Option(help="The run folder. The same command resumes in it.", show_default=False)
    ] = ...,  # type: ignore[assignment]
    time: Annotated[
        str, typer.Option("--time", help="The budget, sessions that were killed included: `20m`, `1h`, `1h30m`.")
    ] = "1h",
    root: Root = None,
    cache: Cache = None,
    backbone: Backbone = None,
    weights: Weights = None,
    recipe: Recipe = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all trainings.")] = 0,
    device: Device = None,
    overwrite: Overwrite = False,
    quiet: Silent = False,
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
