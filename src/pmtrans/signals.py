"""SIGINT and SIGTERM: finish the step and save; a second one stops at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(BaseException):
    """Training stopped by a signal. No ``Exception``: code that forgives any error must not forgive this."""

    def __init__(self, number: int, at_once: bool = False) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number
        self.at_once = at_once  # by a second signal: the step was not finished, what was saved before is whole


class StopRequest:
    """Set by a signal, read by the loop between steps."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and not _cleans_up(frame):
            raise Interrupted(number, at_once=True)
        self.signal = number

    def check(self) -> None:
        if self.signal is not None:
            raise Interrupted(self.signal)


def _cleans_up(frame: FrameType | None) -> bool:
    """Whether a ``__del__`` is under way, as of a loader waiting for its processes: Python forgets what it raises."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def signal_name(number: int) -> str:
    """``SIGKILL``; a real-time signal has a number only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def end_after(event: Callable[[], object], grace: float = 0.0) -> None:
    """Once ``event`` returns, this process ends: first as SIGTERM does, after ``grace`` seconds at once."""

    def watch() -> None:
        event()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace)
        os._exit(1)

    threading.Thread(target=watch, name="end", daemon=True).start()


@contextmanager
def held_back(*numbers: int) -> Iterator[None]:
    """Signals that come meanwhile wait until the end; a process that is started here never gets them by itself."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Listen while the block runs; only the main thread can (a notebook's may, a worker thread may not)."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
