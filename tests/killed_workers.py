"""Pieces of work that kill the process that does them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def squared(number: int) -> int:
    return number * number


def killed_once(piece: tuple[int, str]) -> int:
    """The third piece kills its process, the first time."""
    number, folder = piece
    mark = Path(folder) / "killed"
    if number == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def always_killed(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def held(folder: str) -> None:
    """Leaves a file named after its process, and takes its time."""
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(60)


def killing_once(function: Callable[[str], Result], victim: str, mark: str, path: str) -> Result:
    """``function(path)``, but the first look at ``victim`` kills the process."""
    if path == victim and not os.path.exists(mark):
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return function(path)
