"""What the verbs that train have in common."""

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
    """A signal is no error: say what was saved and how to go on, and exit with the code that shells expect."""
    try:
        yield
    except Interrupted as interrupted:
        how = "at once by a second" if interrupted.at_once else "by"
        kept = "the last checkpoint is" if interrupted.at_once else "all that was done is saved"
        if is_main():
            said = f"Stopped {how} {interrupted}; {kept} in {one_line(out)}. Go on with: {_same_command()}"
            print(said, file=sys.stderr)
        raise typer.Exit(interrupted.exit_code) from None
    except KeyboardInterrupt:  # before training began
        raise typer.Exit(130) from None


def _same_command() -> str:
    kept = []
    arguments = iter(sys.argv[1:])
    for argument in arguments:
        if argument == "--resume":
            next(arguments, None)
        elif argument != "--overwrite" and not argument.startswith("--resume="):
            kept.append(argument)
    return one_line("pmtrans " + shlex.join(kept), 2000)


def show_summary(summary: Summary, out: Path) -> None:
    """Both accuracies beside each other, where target labels exist."""
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
