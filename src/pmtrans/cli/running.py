"""What the verbs that train have in common."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from pmtrans.errors import one_line
from pmtrans.run.summary import Summary
from pmtrans.training.signals import Interrupted


@contextmanager
def interruptible(out: Path) -> Iterator[None]:
    """A signal is no error: say what was saved and how to go on, and exit with the code that shells expect."""
    try:
        yield
    except Interrupted as interrupted:
        print(
            f"Stopped by {interrupted}; saved in {one_line(out)}. Go on with: {_same_command()}",
            file=sys.stderr,
        )
        raise typer.Exit(interrupted.exit_code) from None


def _same_command() -> str:
    return "pmtrans " + shlex.join(argument for argument in sys.argv[1:] if argument != "--overwrite")


def show_summary(summary: Summary, out: Path) -> None:
    """Both accuracies beside each other, where target labels exist."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Accuracy on the target (its labels were used for this table only)")
    table.add_column("")
    table.add_column("overall", justify="right")
    table.add_column("mean of classes", justify="right")
    for name, overall in (("source only", summary.source_only), (summary.method, summary.adapted)):
        key = "source_only" if name == "source only" else "adapted"
        last = summary.evaluations.get(key) or {}
        if overall is not None:
            table.add_row(name, f"{100 * overall:.1f} %", f"{100 * last.get('oracle_per_class_mean', 0):.1f} %")
    console = Console()
    if table.row_count:
        console.print(table)
    else:
        console.print("The target has no labels, so no accuracy can be measured.")
    console.print(f"Run folder: {one_line(out)}", markup=False, highlight=False, soft_wrap=True)
