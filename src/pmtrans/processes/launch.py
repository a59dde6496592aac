"""Start N processes of one command on this machine, as torchrun would; where one fails, all end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from pmtrans.machine import refuse_many, threads_for
from pmtrans.processes.environment import FOLDER, LAUNCHER, private_folder
from pmtrans.signals import signal_name

GRACE = 20.0  # seconds for the others to notice and to end by themselves


def launch(arguments: Sequence[str], count: int) -> int:
    """Run ``pmtrans ARGUMENTS`` in ``count`` processes; the exit code is that of the first that failed.

    Signals go to all of them: they finish the step, save once and end.
    """
    refuse_many(count)
    shared = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),  # DDP's advice on unused parameters
        "OMP_NUM_THREADS": str(threads_for(count)),
    }
    command = [sys.executable, "-m", "pmtrans", *arguments]
    processes: list[subprocess.Popen[bytes]] = []
    with private_folder() as meeting, _passed_on(processes):
        for rank in range(count):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank), FOLDER: str(meeting), LAUNCHER: str(os.getpid())}
            processes.append(subprocess.Popen(command, env={**os.environ, **shared, **place}))
        return _wait(processes)


def _wait(processes: list[subprocess.Popen[bytes]]) -> int:
    """Until all have ended; once one has failed the others get a grace, then they are ended."""
    deadline: float | None = None
    ended: list[subprocess.Popen[bytes]] = []  # by us
    while running := [process for process in processes if process.poll() is None]:
        if deadline is None and any(process.returncode for process in processes):
            deadline = time.monotonic() + GRACE
        if deadline is not None and time.monotonic() > deadline and not ended:
            ended = running
            for process in ended:
                process.kill()
        time.sleep(0.05)
    # a process that noticed the loss of another says so with an ordinary code: that line was shown
    codes = [process.returncode for process in processes if process.returncode]
    for rank, process in enumerate(processes):
        if process.returncode < 0 and process not in ended:
            name = signal_name(-process.returncode)
            print(f"error: process {rank} of {len(processes)} was ended by {name}.", file=sys.stderr)
    plain = [code for code in codes if code > 0]
    return plain[0] if plain else (128 - codes[0] if codes else 0)


@contextmanager
def _passed_on(processes: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """SIGTERM reaches the processes too; Ctrl-C does so by itself, as the terminal signals all."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)
                if hasattr(signal, "SIGCONT"):  # one that was stopped would keep all others waiting
                    process.send_signal(signal.SIGCONT)

    def leave_it(number: int, frame: FrameType | None) -> None:  # SIG_IGN would be inherited
        pass

    own_terminal = os.getpgrp() == _foreground_group()
    previous = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on),
        signal.SIGINT: signal.signal(signal.SIGINT, leave_it if own_terminal else pass_on),
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _foreground_group() -> int:
    try:
        return os.tcgetpgrp(sys.stdin.fileno())
    except (OSError, ValueError, AttributeError):
        return -1
