"""``pmtrans export``: the model as a file for another runtime, or on the Hugging Face hub."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class Format(str, Enum):
    """The formats to export to."""

    onnx = "onnx"
    torch = "torch"
    openvino = "openvino"
    hub = "hub"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a model folder.")],
    format: Annotated[
        Format | None,
        typer.Option(help="`onnx`, `torch` (a `torch.export` program), `openvino` (IR: a graph and its weights) or "
                     "`hub` (upload the model folder); default: what the ending of --out means.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write: `.onnx`, `.pt2`, or `.xml` (OpenVINO; the weights go into a `.bin` "
                     "beside it).", show_default=False),
    ] = None,
    with_preprocessing: Annotated[
        bool,
        typer.Option("--with-preprocessing", help="Take 8-bit RGB images of any size: resize and crop in the graph "
                     "(ONNX and torch)."),
    ] = False,
    int8: Annotated[bool, typer.Option("--int8", help="8-bit weights (ONNX).")] = False,
    images: Annotated[
        str | None,
        typer.Option(help="Images for the parity check; default: those of the run.", show_default=False),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="Largest difference allowed in a probability; default: 1e-4, with --int8 0.25.",
                     show_default=False),
    ] = None,
    repo: Annotated[str | None, typer.Option(help="`ORG/NAME` on the hub.", show_default=False)] = None,
    public: Annotated[bool, typer.Option("--public", help="Make a new repository public.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file at `--out`.")] = False,
) -> None:  # fmt: skip
    """Write the model for another runtime, and check that its predictions agree; a mismatch leaves no file.

    Example:

        pmtrans export runs/phone --out phone.onnx --with-preprocessing
    """
    from pmtrans.cli.early import require_data, require_model
    from pmtrans.errors import ConfigError, one_line

    require_model(run)
    if images is not None:
        require_data("--images", images)
    from pmtrans.inference.predictor import load, model_folder

    if format is Format.hub:
        from pmtrans.inference.hub import push_model

        if repo is None:
            raise ConfigError("--format hub needs --repo ORG/NAME.")
        predictor = load(run, "cpu")  # do not publish a model that cannot be loaded
        typer.echo(push_model(model_folder(run), repo, private=not public))
        return
    if out is None:
        raise ConfigError(f"--format {format.value} needs --out FILE." if format else "Name the file: --out FILE.")
    from pmtrans.inference.export.images import GENERATED, images_for_parity
    from pmtrans.inference.export.openvino_file import weights_of
    from pmtrans.inference.export.write import choose_format, export_model, refuse_impossible
    from pmtrans.run.folder import refuse_own_part

    refuse_own_part(out, run)
    written = choose_format(out, format.value if format else None, overwrite)
    refuse_impossible(written, with_preprocessing, int8)
    predictor = load(run, "cpu")
    check_images, origin = images_for_parity(run, images)
    parity = export_model(predictor.trained, out, written, check_images, with_preprocessing, int8, tolerance)
    files = (out, weights_of(out)) if written == "openvino" else (out,)
    size = sum(file.stat().st_size for file in files) / 1e6
    hint = " (give real ones with --images)" if origin == GENERATED else ""
    typer.echo(f"{one_line(out)}: {size:.1f} MB. Checked on {one_line(origin)}{hint}: {parity}.")
