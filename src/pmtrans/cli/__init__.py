"""The command line. Commands import what they need when they run, so ``--help`` is instant."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pmtrans.cli.auto import auto
from pmtrans.cli.bench import bench
from pmtrans.cli.check import check
from pmtrans.cli.data import data
from pmtrans.cli.demo import demo
from pmtrans.cli.evaluate import evaluate
from pmtrans.cli.export import export
from pmtrans.cli.label_these import label_these
from pmtrans.cli.methods import methods
from pmtrans.cli.predict import predict
from pmtrans.cli.report import report
from pmtrans.cli.serve import serve
from pmtrans.cli.settings import settings
from pmtrans.cli.train import train
from pmtrans.cli.verbs import Verbs

app = Verbs(
    name="pmtrans",
    help="Labelled images from one place, unlabelled images from another: get a classifier for the second.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
VERBS = (
    demo, check, data, methods, settings, auto, train, evaluate, report, label_these, predict, export, serve
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
    from pmtrans.errors import ReportedByMainProcess, TrainingError, UserError, one_line
    from pmtrans.processes.environment import is_main

    try:
        app()
    except (UserError, TrainingError) as error:
        if is_main() or not isinstance(error, ReportedByMainProcess):
            print(f"error: {one_line(error, 2000)}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)
