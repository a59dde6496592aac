"""``pmtrans label-these``: which target images to label."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pmtrans.cli.flags import AllowAddress


def label_these(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)] = None,
    named_run: Annotated[
        Path | None, typer.Option("--run", metavar="RUN", help="The same, as an option.", show_default=False)
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Where to write labels.csv, design.csv and index.html.", show_default=False)
    ] = ...,  # type: ignore[assignment]
    count: Annotated[int, typer.Option("--count", "-n", min=2, help="How many images.")] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the half that is drawn at random.")] = 0,
    allow_address: AllowAddress = None,
) -> None:
    """Choose the target images whose labels are most informative: a table to fill in and a page to look at.

    Half are uncertain, diverse, and from all predicted classes: they show where the model fails. The other half is
    drawn at random, so that `evaluate` can estimate the accuracy on the whole target:

        pmtrans label-these runs/phone -n 50 --out to-label

        pmtrans evaluate runs/phone --data to-label/labels.csv
    """
    from pmtrans.cli.early import require_run
    from pmtrans.errors import ConfigError

    if run is not None and named_run is not None:
        raise ConfigError("RUN is given twice: it takes one value.")
    chosen = run or named_run
    if chosen is None:
        raise ConfigError("Name the run: pmtrans label-these RUN --out DIR.")
    require_run(chosen)
    from pmtrans.api import label_these as choose

    typer.echo(str(choose(chosen, out, count=count, seed=seed, allow_addresses=allow_address or ())))
