"""``pmtrans predict``: classify images into a file or to stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pmtrans.inference.predict_files import Counts


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder or a model folder.")],
    paths: Annotated[
        list[str], typer.Argument(help="Folders, images, list files, tables; `-` reads paths from stdin.")
    ],
    out: Annotated[str, typer.Option(help="A `.csv`, `.jsonl` or `.parquet` file; `-` is stdout, as CSV.")] = "-",
    top: Annotated[int, typer.Option(min=1, help="Number of classes per image, most probable first.")] = 1,
    abstain_below: Annotated[
        float, typer.Option(min=0, max=1, help="Abstain where the calibrated probability is below this.")
    ] = 0.0,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per forward pass.")] = 32,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Loader processes; default: by images and cores.", show_default=False)
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="Where relative paths of a list or table start.", show_default=False)
    ] = None,
    device: Annotated[str | None, typer.Option(help="`cpu`, `cuda`, `cuda:1`, ...", show_default=False)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Classify images: one row each, in the order given. Repeat an interrupted command to resume it.

    Columns: path, class, probability, entropy (nats), abstain, error. Exit code 1: not one image could be read.

    Example:

        pmtrans predict runs/phone photos/new --out new.csv --abstain-below 0.8
    """
    from pmtrans.cli.early import require_model

    require_model(run)
    from pmtrans.inference.inputs import gather
    from pmtrans.inference.output import writer_for
    from pmtrans.inference.predict_files import PredictOptions, predict_to_file, predict_to_stream
    from pmtrans.inference.predictor import load, model_folder
    from pmtrans.machine import useful_workers
    from pmtrans.signals import stop_on_signals

    to_stdout = out == "-"
    if not to_stdout:
        writer_for(Path(out))
    images = gather(paths, sys.stdin.buffer, root)
    predictor = load(run, device)
    options = PredictOptions(min(batch_size, len(images)), top, abstain_below)
    processes = useful_workers(len(images), options.batch_size) if workers is None else workers
    with stop_on_signals() as stop, _progress(len(images), quiet) as advance:
        if to_stdout:
            with _standard_output() as stream:
                counts = predict_to_stream(predictor, images, stream, options, processes, advance, stop)
        else:
            from pmtrans.cli.running import interruptible

            with interruptible(Path(out)):
                counts = predict_to_file(
                    predictor, model_folder(run), images, Path(out), options, processes, advance, stop
                )
    if counts.unreadable == counts.images:
        typer.echo(f"error: none of the {counts.images} images could be read (column error).", err=True)
        raise typer.Exit(1)
    if not quiet:
        typer.echo(_summary(counts, abstain_below), err=True)


def _summary(counts: Counts, abstain_below: float) -> str:
    text = f"{counts.images} images"
    if counts.resumed_at:
        text += f", {counts.resumed_at} of them from before the interruption"
    if counts.unreadable:
        text += f"; {counts.unreadable} could not be read (column error)"
    if abstain_below:
        text += f"; {counts.abstained} abstentions below {abstain_below:g}"
    return text + "."


@contextmanager
def _standard_output() -> Iterator[IO[str]]:
    """Standard output that passes any file name through; a reader that closes early (``| head``) is not an error."""
    import errno
    import io
    import os

    from pmtrans.signals import Interrupted

    if sys.stdout is None:  # closed before the program began
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    with io.TextIOWrapper(os.fdopen(os.dup(sys.stdout.fileno()), "wb"), "utf-8", "surrogateescape", newline="") as text:
        try:
            yield text
            text.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), text.fileno())
            raise typer.Exit from None
        except Interrupted as interrupted:
            raise typer.Exit(interrupted.exit_code) from None


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar with rate and remaining time, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TimeRemainingColumn
    from rich.progress import Task as BarTask
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: BarTask) -> Text:
            return Text(f"{task.speed:.0f} images/s" if task.speed else "")

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda images: None
        return
    with Progress(BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task("", total=total)
        yield lambda images: bar.advance(task, images)
