"""Interruption and summary, shared by the commands that run for long."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from pmtrans.errors import one_line
from pmtrans.processes.environment import is_main
from pmtrans.run.summary import Summary
from pmtrans.signals import Interrupted


@contextmanager
def interruptible(out: Path) -> Iterator[None]:
    """On a signal, print what was saved and how to resume, and exit with the code that shells expect."""
    try:
        yield
    except Interrupted as interrupted:
        how = "at once by a second" if interrupted.at_once else "by"
        saved = "the last checkpoint is" if interrupted.at_once else "all progress is saved"
        if is_main():
            print(
                f"Stopped {how} {interrupted}; {saved} in {one_line(out)}. Resume with: {_resume_command()}",
                file=sys.stderr,
            )
        raise typer.Exit(interrupted.exit_code) from None
    except KeyboardInterrupt:  # before training began
        raise typer.Exit(130) from None


def _resume_command() -> str:
    """The present command without ``--overwrite`` and ``--resume``: the default resumes."""
    kept = []
    arguments = iter(sys.argv[1:])
    for argument in arguments:
        if argument == "--resume":
            next(arguments, None)
        elif argument != "--overwrite" and not argument.startswith("--resume="):
            kept.append(argument)
    return one_line("pmtrans " + shlex.join(kept), 2000)


def show_summary(summary: Summary, out: Path) -> None:
    """Print the accuracy of the source-only and of the adapted model, where target labels exist."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Accuracy on the target (its labels were used for this table only)")
    table.add_column("")
    table.add_column("overall", justify="right")
    table.add_column("mean of classes", justify="right")
    for name, overall in (("source only", summary.source_only), (summary.method, summary.adapted)):
        key = "source_only" if name == "source only" else "adapted"
        last = summary.evaluations.get(key) or {}
        if overall is not None:
            table.add_row(
                Text(one_line(name, 60)),
                f"{100 * overall:.1f} %",
                f"{100 * last.get('oracle_per_class_mean', 0):.1f} %",
            )
    console = Console()
    if table.row_count:
        console.print(table)
    else:
        console.print("The target has no labels, so no accuracy can be measured.")
    console.print(f"Run folder: {one_line(out)}", markup=False, highlight=False, emoji=False, soft_wrap=True)
