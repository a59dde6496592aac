"""``pmtrans adapt``: move a shipped model to a new place without source images."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from pmtrans.cli.flags import Cache, Device, Overwrite, Processes, Resume, Root, Seed, Settings, Silent


def adapt(
    model: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run folder or a model folder.")],
    overrides: Settings = None,
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
    root: Root = None,
    cache: Cache = None,
    seed: Seed = None,
    device: Device = None,
    resume: Resume = "auto",
    processes: Processes = 1,
    overwrite: Overwrite = False,
    quiet: Silent = False,
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
