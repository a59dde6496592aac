"""Several worker processes behind one port: each is a whole server with its own model and its own limits.

The parent binds the port and hands the socket to all workers; the kernel gives each connection to one of them. It
replaces a worker that dies. A signal to the parent stops all of them; if the parent itself is killed, they notice and
end. The parent answers no request.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from pmtrans.errors import ConfigError, TrainingError, UserError, one_line
from pmtrans.machine import share_of_cores
from pmtrans.serving.limits import SHARED_METRICS
from pmtrans.serving.server import Front, Service, address_of, listen, run_server
from pmtrans.signals import end_after, held_back, signal_name

MakeService = Callable[[], Service]  # is sent to the workers: a function of a module, or a partial of one
GRACE = 5.0  # seconds beyond those for open requests, after which a worker is killed
_TRIES = 3  # replacements in a row that end before they are ready
_READY = b""  # what a worker reports; anything else is an error


class LostWorkers(TrainingError):
    """The service had to stop: shown as one line, exit code 1."""


def serve_with_workers(
    make: MakeService, count: int, front: Front, port: int, folder: Path, announce: Callable[[str], None]
) -> None:
    """Serve with ``count`` processes until SIGINT or SIGTERM; ``announce`` is called once all of them are ready.

    ``folder``: of this user alone; the workers' metrics are kept there.
    """
    listener = listen(front.host, port)
    address = address_of(listener, front.host)
    _share_environment(count, folder)
    workers: list[_Worker] = []
    announced = False

    def start(number: int, tries: int = 0) -> _Worker:
        return _Worker(number, tries, (make, listener, front, count, folder))

    with _noted_signals() as signals:
        try:
            workers += [start(number) for number in range(count)]
            while not signals:
                wait(_awaited(workers), timeout=0.2)
                for number, worker in enumerate(workers):
                    worker.hear()
                    if not worker.process.is_alive():
                        workers[number] = start(number, worker.tries_after_death(count, announced))
                        _forget(worker, folder)
                if not announced and all(worker.is_ready for worker in workers):
                    announced = True
                    announce(address)
        finally:
            listener.close()
            _stop(workers, front.limits.stop_seconds + GRACE, signals)


class _Worker:
    """One process, as its parent sees it."""

    def __init__(self, number: int, tries: int, work: tuple[MakeService, socket.socket, Front, int, Path]) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy threads and locks half-way
        self.number, self.tries, self.is_ready = number, tries, False
        self.report, writer = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(*work, writer), name=f"worker {number}", daemon=True)
        with held_back(signal.SIGINT):  # Ctrl-C reaches all, and the parent alone decides
            self.process.start()
        writer.close()

    def hear(self) -> None:
        """Read what it reports: that it is ready, or why it cannot serve, which is raised."""
        if self.is_ready or not self.report.poll():
            return
        try:
            said = self.report.recv_bytes()
        except EOFError:  # it died: the caller sees that too
            return
        if said != _READY:
            raise ConfigError(said.decode())
        self.is_ready, self.tries = True, 0

    def tries_after_death(self, count: int, announced: bool) -> int:
        """How many in a row ended in its place before they were ready; raises where another try is hopeless."""
        code = self.process.exitcode or 0
        how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with code {code}"
        who = f"worker {self.number + 1} of {count} {how}"
        tries = self.tries + (not self.is_ready)
        if not self.is_ready and (not announced or tries >= _TRIES):
            raise LostWorkers(f"{who} before it was ready: the server stops.")
        print(f"warning: {who}: another one takes its place.", file=sys.stderr, flush=True)
        return tries


def _work(
    make: MakeService, listener: socket.socket, front: Front, count: int, folder: Path, report: Connection
) -> None:
    """What a worker does, from its start to its end."""
    end_after(partial(_loss_of_parent, folder), front.limits.stop_seconds + GRACE)
    try:
        service = make()
    except UserError as error:
        report.send_bytes(one_line(error, 2000).encode())
        sys.exit(2)
    run_server(service, listener, front, lambda: report.send_bytes(_READY), count)


def _loss_of_parent(folder: Path) -> None:
    """Until the parent has ended, however it did. Nobody else would remove ``folder`` then."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    shutil.rmtree(folder, ignore_errors=True)


def _stop(workers: list[_Worker], seconds: float, signals: list[int]) -> None:
    """End all workers; those that are not done after ``seconds``, or at a second Ctrl-C, are killed."""
    deadline = time.monotonic() + seconds
    for worker in workers:
        worker.process.terminate()
    while any(worker.process.is_alive() for worker in workers):
        if time.monotonic() > deadline or signals[1:].count(signal.SIGINT):
            for worker in workers:
                worker.process.kill()
        time.sleep(0.02)


def _awaited(workers: list[_Worker]) -> list[Any]:
    """What tells of an end, or of a report that has not come yet."""
    unread = [worker.report for worker in workers if not worker.is_ready]
    return [*(worker.process.sentinel for worker in workers), *unread]


def _share_environment(count: int, folder: Path) -> None:
    """For the workers, which inherit it: a part of the cores each, and one folder for their metrics."""
    os.environ.setdefault("OMP_NUM_THREADS", str(share_of_cores(count)))
    metrics = folder / "metrics"
    metrics.mkdir(exist_ok=True)
    os.environ[SHARED_METRICS] = str(metrics)


def _forget(worker: _Worker, folder: Path) -> None:
    """What a dead worker had in work is not in work any more; what it has counted still counts."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(worker.process.pid, str(folder / "metrics"))  # type: ignore[no-untyped-call]


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """The signals so far; the loop looks at them."""
    signals: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = {number: signal.signal(number, lambda number, _: signals.append(number)) for number in numbers}
    try:
        yield signals
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
