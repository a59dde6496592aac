"""``pmtrans label-these``: which target images to label."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def label_these(
    run: Annotated[Path, typer.Option(help="A run folder.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="Where to write labels.csv, design.csv and index.html.", show_default=False)
    ],
    count: Annotated[int, typer.Option("--count", "-n", min=2, help="How many images.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the half that is drawn at random.")] = 0,
) -> None:
    """Choose the target images whose labels are most informative: a table to fill in and a page to look at.

    Half are uncertain, diverse, and from all predicted classes: they show where the model fails. The other half is
    drawn at random, so that `evaluate` can estimate the accuracy on the whole target:

        pmtrans label-these --run runs/phone -n 50 --out to-label

        pmtrans evaluate runs/phone --data to-label/labels.csv
    """
    from pmtrans.cli.early import require_run

    require_run(run)
    from pmtrans.api import label_these as choose

    typer.echo(str(choose(run, out, count=count, seed=seed)))
