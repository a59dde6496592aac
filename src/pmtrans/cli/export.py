"""``pmtrans export``"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Format(str, Enum):
    """What to export to."""

    onnx = "onnx"
    torch = "torch"
    hub = "hub"


def export(
    run: Annotated[Path, typer.Argument(help="A run folder or a model folder.")],
    format: Annotated[
        Format, typer.Option(help="`onnx`, `torch` (a `torch.export` program) or `hub` (upload the model folder).")
    ] = Format.onnx,
    out: Annotated[Path | None, typer.Option(help="The file to write.", show_default=False)] = None,
    with_preprocessing: Annotated[
        bool,
        typer.Option("--with-preprocessing", help="Take 8-bit RGB images of any size; resize inside the graph."),
    ] = False,
    int8: Annotated[bool, typer.Option("--int8", help="8-bit weights (ONNX).")] = False,
    images: Annotated[
        str | None,
        typer.Option(help="Images for the check at the end; by default the run's own.", show_default=False),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="Largest difference of a probability allowed: 1e-4, or 0.25 with --int8.",
                     show_default=False),
    ] = None,
    repo: Annotated[str | None, typer.Option(help="`ORG/NAME` on the hub.", show_default=False)] = None,
    public: Annotated[bool, typer.Option("--public", help="Let everybody see a new repository.")] = False,
) -> None:  # fmt: skip
    """Write the model for another runtime, and check that it says the same; a mismatch leaves no file.

    Example:

        pmtrans export runs/phone --format onnx --out phone.onnx --with-preprocessing
    """
    from pmtrans.errors import ConfigError, one_line
    from pmtrans.inference.predictor import load, model_folder

    if format is Format.hub:
        from pmtrans.inference.hub import push_model

        if repo is None:
            raise ConfigError("Say where to: --repo ORG/NAME.")
        predictor = load(run, "cpu")  # what cannot be opened here is not worth publishing
        typer.echo(push_model(model_folder(run), repo, private=not public))
        return
    if out is None:
        raise ConfigError("Say what to write: --out FILE.")
    from pmtrans.inference.export.images import images_to_check
    from pmtrans.inference.export.write import export_model

    predictor = load(run, "cpu")
    checked, place = images_to_check(run, images, predictor.trained.preprocessing.resize_to)
    parity = export_model(
        predictor.trained, out, format.value, checked, with_preprocessing, int8, tolerance
    )  # fmt: skip
    size = out.stat().st_size / 1e6
    typer.echo(f"{one_line(out)}: {size:.1f} MB. Checked on {one_line(place)}: {parity}.")
