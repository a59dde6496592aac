"""Interruption, shared by the commands that run for long."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from pmtrans.errors import one_line
from pmtrans.processes.environment import is_first_here
from pmtrans.signals import Interrupted


@contextmanager
def interruptible(out: Path) -> Iterator[None]:
    """On a signal, print what was saved and how to resume, and exit with the code that shells expect."""
    try:
        yield
    except Interrupted as interrupted:
        how = "at once by a second" if interrupted.at_once else "by"
        saved = "the last checkpoint is" if interrupted.at_once else "all progress is saved"
        if is_first_here():
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
