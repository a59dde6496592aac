"""The command line. Commands import what they need when they run, so ``--help`` is instant."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated

import typer

from pmtrans.cli.adapt import adapt
from pmtrans.cli.auto import auto
from pmtrans.cli.bench import bench
from pmtrans.cli.check import check
from pmtrans.cli.data import data
from pmtrans.cli.demo import demo
from pmtrans.cli.evaluate import evaluate
from pmtrans.cli.export import export
from pmtrans.cli.label_these import label_these
from pmtrans.cli.methods import methods
from pmtrans.cli.pack import pack
from pmtrans.cli.predict import predict
from pmtrans.cli.report import report
from pmtrans.cli.serve import serve
from pmtrans.cli.settings import settings
from pmtrans.cli.study import study
from pmtrans.cli.train import train
from pmtrans.cli.verbs import Verbs
from pmtrans.cli.watch import watch

app = Verbs(
    name="pmtrans",
    help="Labelled images from one place, unlabelled images from another: get a classifier for the second.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
VERBS = (
    demo, check, data, pack, methods, settings, auto, train, adapt, evaluate, report, label_these, predict, watch,
    export, serve, study,
)  # fmt: skip
for command in VERBS:
    app.command()(command)
app.add_typer(bench)


def _show_version(requested: bool) -> None:
    if requested:
        from pmtrans.version import __version__

        typer.echo(f"pmtrans {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point: a user error is one line and exit code 2, a failed training one line and exit code 1."""
    _replace_what_cannot_be_encoded()
    try:
        _main()
    except KeyboardInterrupt:  # before a command listens to signals
        _say("Interrupted.")
        _is_leaving()
        sys.exit(130)
    except SystemExit as end:
        if end.code in (130, 143):
            _is_leaving()
        raise


def _is_leaving() -> None:
    """Another Ctrl-C while the interpreter takes everything apart would be a traceback."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _replace_what_cannot_be_encoded() -> None:
    """Names hold any character, and a stream may be ASCII (``PYTHONIOENCODING``): escapes can still be read."""
    for stream in (sys.stdout, sys.stderr):
        if getattr(stream, "errors", None) == "strict":
            with suppress(AttributeError, OSError, ValueError):
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _main() -> None:
    from pmtrans.errors import (
        TOO_MANY_OPEN_FILES,
        LostProcess,
        ReportedByMainProcess,
        TrainingError,
        UserError,
        is_out_of_descriptors,
        is_out_of_memory,
        one_line,
    )
    from pmtrans.processes.environment import is_first_here, is_main

    try:
        app()
    except (UserError, TrainingError) as error:
        speaks = is_first_here() if isinstance(error, LostProcess) else is_main()  # the main process may be lost
        if speaks or not isinstance(error, ReportedByMainProcess):
            _say(f"error: {one_line(error, 2000)}")
        if isinstance(error, LostProcess):
            _leave(1)
        sys.exit(2 if isinstance(error, UserError) else 1)
    except OSError as error:
        sys.exit(_say_fault(error))
    except (RuntimeError, MemoryError) as error:
        if is_out_of_descriptors(error):
            _say(f"error: {TOO_MANY_OPEN_FILES}")
        elif is_out_of_memory(error):
            _say("error: Out of memory: take smaller images or smaller batches.")
        else:
            raise
        sys.exit(1)


def _say_fault(error: OSError) -> int:
    """A fault of the machine, as one line with the path; of a bug of ours this would hide nothing but the traceback."""
    import os

    from pmtrans.errors import one_line
    from pmtrans.files import WriteError

    what = "cannot be written: " if isinstance(error, WriteError) or error.filename is None else ""
    where = f"{one_line(os.fsdecode(error.filename))!r}" if error.filename is not None else "The output"
    where += "" if what else ":"
    _say(f"error: {where} {what}{one_line(error.strerror or error, 200)}.")
    _silence()
    return 1


def _say(line: str) -> None:
    """Where stderr is full or closed too, the exit code alone has to say it."""
    try:
        print(line, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        _silence()


def _leave(code: int) -> None:
    """At once: threads of a group that has lost a process may abort while the interpreter takes everything apart."""
    import multiprocessing
    import os

    for child in multiprocessing.active_children():
        child.terminate()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _silence() -> None:
    """What Python would flush at its end, and complain of."""
    import os

    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
