"""Sessions of the command line, each a fork of this process, which has imported everything: saves 5 s of imports each.

A session is the same ``main()`` with the same arguments. The forking process never trains or predicts itself (it
would hand threads and locks to its children), so what compares results is a session too. Ranks of ``--processes``
are forks of their launcher.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.util
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pmtrans.signals import held_back

T = TypeVar("T")
TIME_LIMIT = 240.0  # seconds for one session: what hangs is a fault too
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
BUG = 70  # exit code of a session that ended with a traceback


def warm_up() -> None:
    """Import what sessions need."""
    import timm  # noqa: F401

    import pmtrans.inference.predict_files
    import pmtrans.inference.predictor
    import pmtrans.labelling.choice
    import pmtrans.report.page
    import pmtrans.training.train  # noqa: F401
    from pmtrans.cli import main  # noqa: F401


@dataclass(frozen=True)
class Ended:
    """What a session said, and how it ended; a negative code is a signal, None is a hang."""

    code: int | None
    text: str
    seconds: float

    def fault(self, allowed: tuple[int, ...] = (0, 1, 2)) -> str:
        """What is wrong with this end for a user, in a few words; empty where nothing is."""
        if self.code is None:
            return f"no end within {self.seconds:.0f} s"
        last = next((line for line in reversed(self.text.splitlines()) if line.strip()), "")
        if "Traceback (most recent call last)" in self.text:
            return f"traceback: {last[:200]}"
        return "" if self.code in allowed else f"exit code {self.code}: {last[:200]}"


def start(arguments: list[str], log: Path, prepare: Callable[[], object] = lambda: None) -> int:
    """``pmtrans ARGUMENTS`` in a process group of its own; ``prepare`` is called in it first."""
    log.touch()  # a session may be killed before it has one
    with held_back(*_SIGNALS):  # until the session listens: else it would leave as this process, and remove its folders
        if pid := os.fork():
            return pid
        os.setsid()
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        return _run(arguments, prepare)


def _run(arguments: list[str], prepare: Callable[[], object] = lambda: None) -> NoReturn:
    """Be the command line, and end as an interpreter does."""
    from pmtrans.cli import main
    from pmtrans.processes import launch

    _forget_exit_functions()
    vars(launch)["subprocess"] = _ForkingSubprocess
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["pmtrans", *arguments]
    code: object = 0
    try:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            prepare()
        except KeyboardInterrupt:  # before there is a command, as while an interpreter starts
            sys.exit(130)
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = BUG
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _forget_exit_functions() -> None:
    """Those of the forking process are not a session's to call: they remove its temporary folders."""
    atexit._clear()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]
    atexit.register(multiprocessing.util._exit_function)  # type: ignore[attr-defined]


class _Fork:
    """The part of ``Popen`` that the launcher uses."""

    def __init__(self, command: list[str], env: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        with held_back(*_SIGNALS):
            self.pid = os.fork()
            if not self.pid:
                os.environ.clear()
                os.environ.update(env)
                _run(command[3:])  # python -m pmtrans

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _ForkingSubprocess:
    Popen = _Fork


def has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def wait(pid: int, limit: float = TIME_LIMIT) -> int | None:
    """The exit code; None after the time limit, when the whole group is killed."""
    deadline = time.monotonic() + limit
    while not has_ended(pid):
        if time.monotonic() > deadline:
            end_group(pid)
            os.waitpid(pid, 0)
            return None
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def end_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def run(
    arguments: list[str], prepare: Callable[[], object] = lambda: None, limit: float = TIME_LIMIT, group: bool = True
) -> Ended:
    """A whole session, and what it said."""
    with tempfile.TemporaryDirectory(prefix="pmtrans-said-") as folder:
        log = Path(folder) / "log"
        begin = time.monotonic()
        pid = start(arguments, log, prepare)
        code = wait(pid, limit)
        if group:
            end_group(pid)
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        return Ended(code, text, time.monotonic() - begin)


def run_interpreter(arguments: list[str], limit: float = TIME_LIMIT, **streams: Any) -> Ended:
    """As ``run``, in an interpreter of its own: where its end matters too, as with closed streams."""
    begin = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "pmtrans", *arguments], start_new_session=True, **streams)
    try:
        said = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        end_group(process.pid)
        process.communicate()
        return Ended(None, "", time.monotonic() - begin)
    text = b"".join(part for part in said if part).decode("utf-8", errors="replace")
    return Ended(process.returncode, text, time.monotonic() - begin)


def in_a_fork(work: Callable[[], T], limit: float = TIME_LIMIT) -> T:
    """The result of ``work``, done in a child, so that this process stays fit to fork from."""
    with tempfile.TemporaryDirectory(prefix="pmtrans-fork-") as folder:
        out = Path(folder) / "result"
        pid = os.fork()
        if not pid:
            try:
                out.write_bytes(pickle.dumps(work()))
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(BUG)
            os._exit(0)
        code = wait(pid, limit)
        if code != 0:
            raise RuntimeError(f"the comparison ended with {code}")
        result: T = pickle.loads(out.read_bytes())
        return result
