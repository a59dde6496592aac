"""The folder of ``auto``: the names of its own files, and whose it is. Imports nothing heavy."""

from __future__ import annotations

import shutil
from pathlib import Path

from pmtrans.errors import RunError, one_line

PLAN, CLOCK, LEADERBOARD, COMPARISON, RUNS = "auto.json", "clock.json", "leaderboard.csv", "comparison.html", "runs"


def refuse_unless_ours(out: Path) -> None:
    """A folder with anything in it must be one of ``auto``."""
    shown = one_line(out)
    if out.exists() and not out.is_dir():
        raise RunError(f"--out {shown!r} is a file, not a folder.")
    names = {entry.name for entry in out.iterdir()} - {".lock"} if out.is_dir() else set()
    if names and not names & {PLAN, CLOCK}:
        raise RunError(f"Output folder {shown!r} is in use and was not made by pmtrans auto: choose another --out.")


def open_folder(out: Path, overwrite: bool) -> None:
    """Made if needed, emptied if asked."""
    refuse_unless_ours(out)
    out.mkdir(parents=True, exist_ok=True)
    if overwrite:
        for entry in sorted(out.iterdir(), key=lambda entry: entry.name == PLAN):  # the mark of ours last
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != ".lock":
                entry.unlink()
