"""``pmtrans watch``: predict new images as they arrive, and say when the place has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pmtrans.cli.flags import AllowAddress, Device, Silent


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run folder.")],
    images: Annotated[
        Path, typer.Option(help="The folder in which images arrive, subfolders included.", show_default=False)
    ] = ...,  # type: ignore[assignment]
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of `predictions.csv` and `windows.csv`. [default: RUN/watch]", show_default=False),
    ] = None,
    window: Annotated[int, typer.Option(min=8, max=5000, help="Images that are tested for drift together.")] = 64,
    false_alarms: Annotated[
        float, typer.Option(min=0.0005, max=0.5, help="Share of the windows without drift that raise an alarm.")
    ] = 0.01,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks into the folder.")] = 10.0,
    once: Annotated[bool, typer.Option("--once", help="Handle what is there and end, as for cron.")] = False,
    device: Device = None,
    allow_address: AllowAddress = None,
    quiet: Silent = False,
) -> None:
    """Predict the images of a folder as they arrive, each once, and test whether they are still like the run's target.

    Rows are added to `predictions.csv` (the columns of `predict`). Every window of images is compared with the target
    of the run by a two-sample test on features; `windows.csv` has its results. A line says when adapting again would
    pay. Ctrl-C or SIGTERM ends it, and the same command resumes it.

    Example:

        pmtrans watch runs/phone --images photos/incoming --once
    """
    from pmtrans.cli.early import require_data, require_device, require_run

    if not run.is_dir():
        require_run(run)
    require_data("--images", images)
    require_device(device)
    from pmtrans.progress import Reporter
    from pmtrans.signals import Interrupted, stop_on_signals
    from pmtrans.watching.watch import WatchOptions
    from pmtrans.watching.watch import watch as run_watch

    options = WatchOptions(window, false_alarms, every, once, tuple(allow_address or ()))

    def say(text: str) -> None:
        if not quiet:
            typer.echo(text)

    try:
        with stop_on_signals() as stop:
            run_watch(run, images, out or run / "watch", options, Reporter(quiet), say, stop, device)
    except Interrupted as interrupted:  # by a second signal: what was committed is whole
        raise typer.Exit(interrupted.exit_code) from None
