"""Interruption and summary, shared by the commands that run for long."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pmtrans.errors import one_line
from pmtrans.processes.environment import is_main
from pmtrans.run.summary import Summary
from pmtrans.signals import Interrupted

if TYPE_CHECKING:
    from rich.console import Console


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
    """Print what the three models are worth, the verdict, and which of them is shipped."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = {"probe": "linear probe", "source_only": "source only", "adapted": summary.method}
    if summary.method == "source_only":
        del rows["adapted"]
    measured = {name: getattr(summary, name) for name in rows}
    has_labels = any(value is not None for value in measured.values())
    table = Table(title="Accuracy on the target")
    table.add_column("")
    table.add_column("estimate (90 % interval)", justify="right")
    if has_labels:
        table.add_column("measured with its labels", justify="right")
        table.add_column("mean of classes", justify="right")
    for name, title in rows.items():
        estimate, entry = summary.estimates.get(name), summary.evaluations.get(name) or {}
        if estimate is None and measured[name] is None:
            continue
        cells = [_estimate(estimate)]
        if has_labels:
            cells += [_percent(measured[name]), _percent(entry.get("oracle_per_class_mean"))]
        table.add_row(Text(one_line(title, 60) + (" (shipped)" if name == summary.shipped else "")), *cells)
    console = Console(highlight=False, emoji=False)
    if table.row_count:
        console.print(table)
    if has_labels:
        _say(console, "The labels of the target were used for the measured columns only; they chose nothing.")
    if summary.verdict is not None:
        _say(console, f"Verdict, without labels: {_VERDICTS[summary.verdict]}. {summary.verdict_reason}")
    _say(console, f"Shipped in model/: {rows.get(summary.shipped, summary.shipped)} ({summary.shipped_reason}).")
    _say(console, f"Run folder: {one_line(out)}")


_VERDICTS = {
    "helped": "adaptation helped",
    "unchanged": "adaptation changed nothing",
    "hurt": "adaptation hurt",
    "cannot tell": "whether adaptation helped cannot be told",
}


def _say(console: Console, text: str) -> None:
    console.print(one_line(text, 2000), markup=False, soft_wrap=True)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _estimate(value: dict[str, Any] | None) -> str:
    if value is None:
        return "-"
    return f"{_percent(value['accuracy'])} ({100 * value['low']:.0f} to {100 * value['high']:.0f})"
