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
    from pmtrans.errors import RunError, one_line
    from pmtrans.labelling.choice import pick_images
    from pmtrans.labelling.worksheet import write_folder
    from pmtrans.report.material import read_material

    material = read_material(run)
    if material.data is None:
        raise RunError(material.warnings[-1])
    if material.evidence is None:
        raise RunError(
            f"{one_line(run)!r} has no saved outputs to choose by: train with a held-out part of the source "
            "(data.holdout above 0), at least to the first evaluation."
        )
    picks = pick_images(material.evidence, count, seed)
    if len(picks) < count:
        typer.echo(f"warning: the target has {len(picks)} images: all of them are listed", err=True)
    typer.echo(str(write_folder(out, picks, material.data.target.domain.paths, material.data.source.classes)))
