"""``pmtrans check``: find problems in the data of two domains before training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pmtrans.cli.engine_flags import ImagesEngineName, RayAddress


def check(
    source: Annotated[
        list[Path],
        typer.Option(
            help="Labelled images: class folders, a list (path label) or a table; may be given several times."
        ),
    ],
    target: Annotated[Path, typer.Option(help="Images to adapt to, labelled or not, in the same formats.")],
    root: Annotated[Path | None, typer.Option(help="Folder that the paths of lists and tables start from.")] = None,
    source_root: Annotated[Path | None, typer.Option(help="`--root` of the source only.")] = None,
    target_root: Annotated[Path | None, typer.Option(help="`--root` of the target only.")] = None,
    classes: Annotated[Path | None, typer.Option(help="A file of class names, one a line; line 1 is id 0.")] = None,
    path_column: Annotated[str | None, typer.Option(help="The tables' column of image paths.")] = None,
    label_column: Annotated[str | None, typer.Option(help="The tables' column of labels.")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Measure the domain gap on this timm transformer's features, not on thumbnails.")
    ] = None,
    weights: Annotated[str, typer.Option(help="The backbone's weights: `timm`, `none`, or a file.")] = "timm",
    image_size: Annotated[int, typer.Option(min=8, max=4096, help="Side of the backbone's input, in pixels.")] = 224,
    examples: Annotated[int, typer.Option(min=0, help="Groups of duplicates to show, per kind.")] = 3,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Files decoded in parallel by one process; default: all processors.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Processes that share the files, each with one core.")] = 1,
    engine: ImagesEngineName = "local",
    ray_address: RayAddress = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Check every image of two domains: unreadable files, counts, duplicates, leaks, the domain gap.

    Never writes to your data. Exit code 0: every file can be read; 1: the data has problems, and each unreadable
    file or malformed line is listed; 2: wrong arguments.

    With --processes or --engine ray the report is the same, also if a process is killed.

    Example: pmtrans check --source office31/amazon --target office31/webcam
    """
    from pmtrans.cli.early import require_data, require_sources

    require_sources(source)
    require_data("--target", target)
    from pmtrans.data.checking.check import check_domains
    from pmtrans.data.reading.listing import MalformedLines
    from pmtrans.data.reading.read import read_target
    from pmtrans.data.reading.several import read_sources
    from pmtrans.errors import ConfigError, one_line
    from pmtrans.processes.file_map import file_map
    from pmtrans.processes.pool import open_pool

    if workers is not None and (processes > 1 or engine == "ray"):
        raise ConfigError("--workers is for one process: leave it out with --processes and --engine ray.")
    columns = {"path_column": path_column, "label_column": label_column}
    try:
        labelled = read_sources(source, root=source_root or root, classes=classes, **columns)
        place = target_root or root
        adapted = read_target(target, labelled.classes, root=place, classes=classes, trained_on=True, **columns)
    except MalformedLines as error:
        for line, reason in error.problems:
            typer.echo(f"{one_line(error.origin)}: {error.unit} {line}: {one_line(reason)}", err=True)
        raise typer.Exit(1) from None
    features = None
    if backbone is not None:
        from pmtrans.evaluation.passes import backbone_features

        features = backbone_features(backbone, weights, image_size)
    with open_pool(processes, engine, ray_address) as pool:
        report = check_domains(
            labelled,
            adapted,
            features=features,
            features_name=f"features of {backbone}",
            workers=workers,
            files=None if pool is None else file_map(pool),
        )
    if json:
        import json as to_json

        typer.echo(to_json.dumps(report.as_json()))  # ASCII, so that no file name can break the stream
    else:
        from rich.console import Console

        from pmtrans.data.checking.text import print_report

        print_report(report, Console(), examples)
    if not report.all_readable:
        raise typer.Exit(1)
