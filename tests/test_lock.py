from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pmtrans.errors import RunError
from pmtrans.files import run_lock, was_locked

HOLD = """
import os, sys, time
from pathlib import Path
from pmtrans.files import run_lock
with run_lock(Path(sys.argv[1])):
    ready, tell = os.pipe()
    child = os.fork()  # as a loader process is started: it inherits what is open
    if child == 0:
        os.write(tell, b"x")
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)  # the child has come to life, and forgotten the lock
    print(child, flush=True)
    time.sleep(60)
"""


def test_a_held_lock_refuses_others_and_names_its_holder(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        with pytest.raises(RunError, match=rf"is in use by process {process.pid}: wait, or choose"), run_lock(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        process.kill()
        process.wait()


def test_a_killed_holder_frees_the_lock_at_once_though_its_loader_processes_live_on(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.kill()
    process.wait()
    try:
        os.kill(child, 0)  # still there
        with run_lock(tmp_path):
            assert (tmp_path / ".lock").read_text() == f"pmtrans process {os.getpid()}\n"
    finally:
        os.kill(child, signal.SIGKILL)


def test_the_lock_can_be_taken_again_and_leaves_its_signature(tmp_path: Path) -> None:
    assert not was_locked(tmp_path)
    for _ in range(2):
        with run_lock(tmp_path):
            pass
    assert was_locked(tmp_path)
