"""``pmtrans evaluate``: accuracy on labelled images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder or a model folder.")],
    data: Annotated[str, typer.Option(help="Labelled images.", show_default=False)] = ...,  # type: ignore[assignment]
    root: Annotated[
        str | None, typer.Option(help="Where relative paths of a list or table start.", show_default=False)
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per forward pass.")] = 64,
    workers: Annotated[int, typer.Option(min=0, help="Loader processes.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure accuracy on labelled images, overall and per class, with a 95 % interval.

    Only half of a labels.csv of `label-these` was drawn at random; the estimate accounts for that.

    Example:

        pmtrans evaluate runs/phone --data photos/phone-labelled --json
    """
    import json as encoder
    from dataclasses import asdict

    from pmtrans.data.reading.read import read_target
    from pmtrans.errors import DataError, one_line
    from pmtrans.evaluation.accuracy import measure_accuracy
    from pmtrans.evaluation.passes import run_pass
    from pmtrans.inference.predictor import load
    from pmtrans.labelling.sampled_accuracy import measure_labelled

    predictor = load(run)
    target = read_target(data, predictor.classes, root=root, trained_on=False)
    if target.labelled is None:
        raise DataError(f"{one_line(data)}: no labels found, so there is nothing to measure against.")
    import torch

    result = run_pass(predictor.model, target.labelled.paths, predictor.trained.preprocessing, batch_size, workers)
    predicted = result.logits_MK.argmax(1)
    accuracy = measure_accuracy(predicted, torch.tensor(target.labelled.labels), predictor.classes)
    correct = (predicted.cpu() == torch.tensor(target.labelled.labels)).tolist()
    estimate = measure_labelled(dict(zip(target.labelled.paths, correct, strict=True)), Path(data), root)
    if json:
        values = {
            "accuracy": accuracy.overall,
            "estimate": asdict(estimate),
            "per_class_mean": accuracy.per_class_mean,
            "per_class": accuracy.per_class,
            "images": len(target.labelled),
            "warnings": list(target.warnings),
        }
        typer.echo(encoder.dumps(values, ensure_ascii=True))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=f"{100 * accuracy.overall:.2f} % of {len(target.labelled)} images, "
        f"mean of classes {100 * accuracy.per_class_mean:.2f} %"
    )
    table.add_column("class")
    table.add_column("accuracy", justify="right")
    for name, value in accuracy.per_class.items():
        table.add_row(Text(one_line(name, 60)), "no image" if value is None else f"{100 * value:.1f} %")
    Console().print(table)
    typer.echo(
        f"accuracy on {estimate.of}: {100 * estimate.accuracy:.1f} % "
        f"(95 % interval: {100 * estimate.low:.1f} to {100 * estimate.high:.1f} %)"
    )
    for warning in target.warnings:
        typer.echo(f"warning: {one_line(warning)}", err=True)
