"""``pmtrans adapt``: move a shipped model to a new place without source images."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pmtrans.cli.completion import complete_setting


def adapt(
    model: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run folder or a model folder.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[section.key=value]...",
            autocompletion=complete_setting,
            help="Any setting of the training, such as `train.epochs=10`.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str, typer.Option(help="Unlabelled images of the new place. Class folders are used for evaluation only.")
    ] = ...,  # type: ignore[assignment]
    out: Annotated[Path, typer.Option(help="The run folder. An interrupted run in it is resumed.")] = ...,  # type: ignore[assignment]
    old: Annotated[
        list[str] | None,
        typer.Option(
            help="Images of a place where the model worked so far; may be given several times. Its accuracy (class "
            "folders) or its agreement with the given model is watched; nothing is trained on it.",
            show_default=False,
        ),
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="Folder that the paths of list files and tables start from.", show_default=False)
    ] = None,
    cache: Annotated[
        str | None, typer.Option(help="A folder for a cache of resized images.", show_default=False)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Same seed, same weights, bit for bit (on a CPU).", show_default=False)
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="`cpu`, `cuda`, `cuda:1`, `mps`; default: a GPU if any.", show_default=False)
    ] = None,
    resume: Annotated[
        str,
        typer.Option(metavar="HOW", help="`auto`: the run in `--out`; `never`; or a run or checkpoint to resume."),
    ] = "auto",
    processes: Annotated[
        int,
        typer.Option(min=1, help="Processes (GPUs) of this machine that share each batch; same result up to rounding."),
    ] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in `--out`.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Move a trained model to a new place: its model folder and unlabelled images are enough, no source is read.

    The result is a run folder that every verb takes, this one too: a model can move again and again. Settings are those
    of the given run (of a model folder: the defaults), and `section.key=value` changes them. The verdict compares with
    the given model; without source images it may be `cannot tell`, and no accuracy is estimated.

    Example:

        pmtrans adapt runs/webcam --target photos/dslr --out runs/dslr --old photos/webcam
    """
    from pmtrans.cli.early import require_data, require_model
    from pmtrans.cli.ending import show_summary
    from pmtrans.cli.running import interruptible
    from pmtrans.config import settings_from_flags
    from pmtrans.processes.environment import is_main, is_started
    from pmtrans.run.folder import RunFolder, refuse_occupied

    require_model(model)
    for flag, place in (("--target", target), *(("--old", place) for place in old or ())):
        require_data(flag, place)
    refuse_occupied(RunFolder(out))
    from pmtrans.training.moving import move, moving_config, open_donor

    donor = open_donor(model)
    flags = settings_from_flags(root=root, cache=cache, seed=seed, device=device)
    config = moving_config(donor, target, out, overrides or [], flags)
    if processes > 1 and not is_started():
        from pmtrans.processes.launch import launch

        raise typer.Exit(launch(sys.argv[1:], processes))
    from pmtrans.progress import Reporter

    with interruptible(out):
        summary = move(donor, config, out, Reporter(quiet), old or (), overwrite, resume)
    if is_main() and not quiet:
        show_summary(summary, out)
