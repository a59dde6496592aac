"""``pmtrans predict``: classify images into a file or to stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from pmtrans.cli.engine_flags import ImagesEngineName, RayAddress
from pmtrans.cli.flags import Device

if TYPE_CHECKING:
    from pmtrans.inference.predict_files import Counts


class Prior(str, Enum):
    """Class balances that a model folder knows."""

    target = "target"
    source = "source"
    uniform = "uniform"


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a model folder.")],
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Folders, images, lists, tables, shards; `-` reads paths from stdin."),
    ],
    out: Annotated[str, typer.Option(help="A `.csv`, `.jsonl` or `.parquet` file; `-` is stdout, as CSV.")] = "-",
    top: Annotated[int, typer.Option(min=1, help="Number of classes per image, most probable first.")] = 1,
    abstain_below: Annotated[
        float, typer.Option(min=0, max=1, help="Abstain where the calibrated probability is below this.")
    ] = 0.0,
    prior: Annotated[
        Prior | None,
        typer.Option(
            help="Class balance to expect: of the run's target as estimated, of its source, or all equal; default: "
            "what the model has learned.",
            show_default=False,
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per forward pass.")] = 32,
    workers: Annotated[
        int | None,
        typer.Option(min=0, max=512, help="Loader processes; default: by images and cores.", show_default=False),
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="Where relative paths of a list or table start.", show_default=False)
    ] = None,
    device: Device = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that share the images, each with a GPU or a share of the cores.")
    ] = 1,
    engine: ImagesEngineName = "local",
    ray_address: RayAddress = None,
    cpus: Annotated[float, typer.Option(help="Ray: CPUs per task.")] = 1,
    gpus: Annotated[float, typer.Option(help="Ray: GPUs per task, such as 0.5.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Classify images: one row each, in the order given. Repeat an interrupted command to resume it.

    Columns: path, class, probability, entropy (nats), abstain, error; unknown_score where the run is open. Exit code
    1: not one image could be read.

    With --processes or --engine ray the file has the same rows in the same order, also if a process is killed.

    Example:

        pmtrans predict runs/phone photos/new --out new.csv --abstain-below 0.8

        pmtrans predict runs/phone 'shards/new-{000..127}.tar' --out new.parquet --processes 4
    """
    from pmtrans.cli.early import require_device, require_inputs, require_model

    require_model(run)
    require_inputs(paths)
    require_device(device)
    from pmtrans.errors import ConfigError
    from pmtrans.inference.divided import divided_rows
    from pmtrans.inference.inputs import gather
    from pmtrans.inference.output import writer_for
    from pmtrans.inference.predict_files import PredictOptions, predict_to_file, predict_to_stream
    from pmtrans.inference.predictor import load, model_folder
    from pmtrans.machine import useful_workers
    from pmtrans.processes.pool import open_pool
    from pmtrans.run.folder import refuse_own_part
    from pmtrans.signals import stop_on_signals

    to_stdout = out == "-"
    if not to_stdout:
        writer_for(Path(out))
        refuse_own_part(Path(out), run)

    def warn(warning: str) -> None:
        if not quiet:
            typer.echo(f"warning: {warning}", err=True)

    images = gather(paths, sys.stdin.buffer, root, warn)
    divided = processes > 1 or engine == "ray"
    if divided and to_stdout:
        raise ConfigError("--processes and --engine ray need a file: --out FILE.")
    if divided and device is not None and ":" in device:
        raise ConfigError(
            f"--device {device}: --processes and --engine ray give each process a GPU: leave the number out."
        )
    predictor = load(run, "cpu" if divided else device, prior.value if prior else None)
    top = min(top, len(predictor.trained.classes))
    options = PredictOptions(min(batch_size, len(images)), top, abstain_below, prior.value if prior else None)
    if workers is None:
        workers = 0 if divided else useful_workers(len(images), options.batch_size)
    with stop_on_signals() as stop, progress(len(images), quiet) as advance:
        if to_stdout:
            with _standard_output() as stream:
                counts = predict_to_stream(predictor, images, stream, options, workers, advance, stop)
        else:
            from pmtrans.cli.running import interruptible

            model = model_folder(run)
            with interruptible(Path(out)), open_pool(processes, engine, ray_address, cpus, gpus) as pool:
                rows_of = (
                    None if pool is None else lambda left: divided_rows(pool, model, device, left, options, workers)
                )
                counts = predict_to_file(predictor, model, images, Path(out), options, workers, advance, stop, rows_of)
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
def progress(total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
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
