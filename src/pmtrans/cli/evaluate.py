"""``pmtrans evaluate``: accuracy on labelled images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pmtrans.cli.flags import Device

if TYPE_CHECKING:
    from rich.console import Console

    from pmtrans.evaluation.accuracy import Accuracy

MATRIX = 8  # classes whose confusion matrix fits a terminal of 80 columns; of more the largest confusions are shown


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a model folder.")],
    data: Annotated[str, typer.Option(help="Labelled images.", show_default=False)] = ...,  # type: ignore[assignment]
    root: Annotated[
        str | None, typer.Option(help="Where relative paths of a list or table start.", show_default=False)
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per forward pass.")] = 64,
    workers: Annotated[int, typer.Option(min=0, max=512, help="Loader processes.")] = 0,
    device: Device = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Of an open run: first move the threshold of the answer `unknown` by these labels."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Measure accuracy on labelled images, overall and per class, with a 95 % interval, F1 and confusions.

    Only half of a labels.csv of `label-these` was drawn at random; the estimate accounts for that.

    Example:

        pmtrans evaluate runs/phone --data photos/phone-labelled --json
    """
    from pmtrans.cli.early import require_data, require_device, require_model

    require_model(run)
    require_data("--data", data)
    require_device(device)
    from pmtrans.errors import one_line
    from pmtrans.labelling.measurement import measure

    measured = measure(run, data, root, batch_size, workers, device, calibrate)
    if json:
        import json as encoder

        typer.echo(encoder.dumps(measured.as_json(), ensure_ascii=True))
        return
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    _show_classes(console, measured.accuracy, measured.images)
    _show_confusions(console, measured.accuracy)
    estimate = measured.estimate
    typer.echo(
        f"accuracy on {estimate.of}: {100 * estimate.accuracy:.1f} % "
        f"(95 % interval: {100 * estimate.low:.1f} to {100 * estimate.high:.1f} %)"
    )
    if measured.open is not None:
        found = measured.open
        typer.echo(
            f"with the answer unknown: known accuracy {100 * found.known_accuracy:.1f} %, unknown recall "
            f"{100 * found.unknown_recall:.1f} % of {found.unknown_images} images, "
            f"harmonic mean {100 * found.harmonic_mean:.1f} %"
        )
    for warning in measured.warnings:
        typer.echo(f"warning: {one_line(warning)}", err=True)


def _show_classes(console: Console, accuracy: Accuracy, images: int) -> None:
    from rich.table import Table
    from rich.text import Text

    from pmtrans.errors import one_line

    table = Table(
        title=f"{100 * accuracy.overall:.2f} % of {images} images, "
        f"mean of classes {100 * accuracy.per_class_mean:.2f} %, macro F1 {100 * accuracy.macro_f1:.2f} %"
    )
    table.add_column("class", overflow="fold")
    for name in ("images", "accuracy", "F1"):
        table.add_column(name, justify="right")
    for name, value in accuracy.per_class.items():
        cells = ("no image" if value is None else f"{100 * value:.1f} %", _percent(accuracy.f1[name]))
        table.add_row(Text(one_line(name, 60)), str(accuracy.counts[name]), *cells)
    console.print(table)


def _show_confusions(console: Console, accuracy: Accuracy) -> None:
    """The whole matrix of a few classes, else the largest confusions."""
    from rich.table import Table
    from rich.text import Text

    from pmtrans.errors import one_line

    names = [one_line(name, 60) for name in accuracy.per_class]
    if len(names) <= MATRIX:
        table = Table(title="Confusion matrix: rows are true classes, columns predictions")
        table.add_column("", overflow="fold")
        for name in names:
            table.add_column(Text(name), justify="right", overflow="fold")  # no name is cut in a narrow terminal
        for name, row in zip(names, accuracy.confusion_KK.tolist(), strict=True):
            table.add_row(Text(name), *map(str, row))
        console.print(table)
        return
    errors = accuracy.confusions(10)
    if errors:
        table = Table(title="Largest confusions")
        for title in ("true class", "predicted", "images"):
            table.add_column(title, justify="right" if title == "images" else "left", overflow="fold")
        for true, predicted, count in errors:
            table.add_row(Text(one_line(true, 60)), Text(one_line(predicted, 60)), str(count))
        console.print(table)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
