"""Several workers behind one port, as real processes: shared work, deaths, stops, and a parent that is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

LIMITS = {"in_all": 20, "per_client": 20, "reserve": 16, "header_seconds": 5.0, "reserve_seconds": 1.0,
          "stop_seconds": 2}  # fmt: skip
SLOW = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n"


class Parent:
    """The process that owns the port, and requests to its workers."""

    def __init__(self, folder: Path, how: str = "well") -> None:
        folder.mkdir()
        self.folder, self.log = folder, folder.with_suffix(".log")
        program = [sys.executable, str(Path(__file__).with_name("small_workers.py")), "2", json.dumps(LIMITS)]
        with self.log.open("wb") as errors:
            self.process = subprocess.Popen(
                [*program, str(folder), how], stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rpartition(":")[2] or 0)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def ask(self, head: str) -> str:
        with self.connect() as connection:
            connection.sendall(f"{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            answer = connection.makefile("rb").read().decode()
        assert " 200 " in answer.splitlines()[0]
        return answer.partition("\r\n\r\n")[2]

    def pid(self) -> int:
        pid: int = json.loads(self.ask("POST /predict"))["pid"]
        return pid

    def workers(self) -> list[psutil.Process]:
        """Its children but for Python's own tracker of resources."""
        found = []
        for child in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):  # one that has just died
                if "spawn_main" in " ".join(child.cmdline()):
                    found.append(child)
        return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Parent]]:
    started: list[Parent] = []

    def begin() -> Parent:
        started.append(Parent(tmp_path / "shared"))
        return started[-1]

    yield begin
    for parent in started:
        parent.process.kill()
        parent.process.wait()


def wait_until(happened: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:  # also where another process has its number by now
        return False


def test_workers_share_the_port_a_killed_one_is_replaced_and_a_stop_ends_all(start: Callable[[], Parent]) -> None:
    parent = start()
    first = {worker.pid for worker in parent.workers()}
    assert len(first) == 2

    # Both answer, and either tells the numbers of both.
    answered = 0
    seen: set[int] = set()
    while seen != first:
        assert answered < 2000
        seen.add(parent.pid())
        answered += 1
    assert f"pmtrans_images_predicted_total {answered}.0" in parent.ask("GET /metrics")

    # A worker that hangs holds nobody up.
    hung, other = sorted(first)
    os.kill(hung, signal.SIGSTOP)
    assert {parent.pid() for _ in range(10)} == {other}
    os.kill(hung, signal.SIGKILL)

    # Another one takes its place, and what the dead one has counted still counts.
    wait_until(lambda: len({worker.pid for worker in parent.workers()} - first) == 1)
    (new,) = {worker.pid for worker in parent.workers()} - first
    answered += 10
    while new not in seen:
        seen.add(parent.pid())
        answered += 1
    assert re.search(r"^warning: worker \d of 2 was ended by SIGKILL: another one takes its place.$",
                     parent.log.read_text(), re.M)  # fmt: skip
    counted = f'pmtrans_requests_total{{path="/predict",status="200"}} {answered}.0'
    wait_until(lambda: counted in parent.ask("GET /metrics"))  # a request is counted once its answer was sent
    numbers = parent.ask("GET /metrics")
    assert f"pmtrans_images_predicted_total {answered}.0" in numbers
    assert "pmtrans_images_in_work 0.0" in numbers

    # Slow clients beyond the places of both workers: health is answered, and the stop takes seconds.
    with ExitStack() as held:
        for _ in range(60):
            held.enter_context(parent.connect()).sendall(SLOW)
        assert json.loads(parent.ask("GET /health"))["pid"] in (other, new)
        workers = parent.workers()
        begin = time.monotonic()
        parent.process.send_signal(signal.SIGTERM)
        assert parent.process.wait(timeout=30) == 0
        assert time.monotonic() - begin < 15
    assert not any(is_running(worker) for worker in workers)


def test_no_worker_outlives_a_killed_parent(start: Callable[[], Parent]) -> None:
    parent = start()
    workers = parent.workers()
    parent.process.kill()
    wait_until(lambda: not any(is_running(worker) for worker in workers), 15)
    assert len(workers) == 2
    assert not parent.folder.exists()
    with pytest.raises(OSError):
        parent.connect()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("refused", r"ConfigError: the model\\nis broken"),
        ("ended", r"LostWorkers: worker [12] of 2 ended with code 3 before it was ready: the server stops\."),
    ],
)
def test_workers_that_cannot_start_end_the_server_with_a_line(how: str, said: str, tmp_path: Path) -> None:
    parent = Parent(tmp_path / "shared", how)
    assert parent.process.wait(timeout=60) == 1
    assert re.fullmatch(said, parent.log.read_text().strip())
