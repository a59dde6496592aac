"""Where runs of a suite are made: here, one after the other, or in processes of this machine, several at a time."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

from pmtrans.bench.execute import Outcome, execute
from pmtrans.bench.jobs import Job
from pmtrans.machine import cores
from pmtrans.progress import Reporter
from pmtrans.signals import Interrupted


class Engine(Protocol):
    """Takes runs, at most ``slots`` at a time. A future that raises ``lost`` lost its worker, not its run."""

    slots: int
    lost: tuple[type[BaseException], ...]

    def submit(self, job: Job) -> Future[Outcome]: ...

    def stop(self) -> None:
        """Ask all runs to save and end."""

    def close(self) -> None: ...


class Serial:
    """In this process; a signal ends the run, saved, and passes on."""

    slots = 1
    lost: tuple[type[BaseException], ...] = ()

    def __init__(self, reporter_for: Callable[[Job], Reporter]) -> None:
        self._reporter_for = reporter_for

    def submit(self, job: Job) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        future.set_result(execute(job, self._reporter_for(job)))
        return future

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


class Processes:
    """``slots`` processes that share the cores, and the GPUs if there are any."""

    lost: tuple[type[BaseException], ...] = (BrokenProcessPool,)

    def __init__(self, slots: int, threads: int | None = None) -> None:
        self.slots = slots
        self.threads = threads or threads_for(slots)
        self._context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads and CUDA's state
        self._stop = self._context.Event()
        self._executor: ProcessPoolExecutor | None = None

    def submit(self, job: Job) -> Future[Outcome]:
        try:
            return self._pool().submit(_work, job)
        except BrokenProcessPool:  # one process was killed: all are replaced, and their runs will be given again
            self._executor = None
            return self._pool().submit(_work, job)

    def _pool(self) -> ProcessPoolExecutor:
        if self._executor is None:
            os.environ["OMP_NUM_THREADS"] = str(self.threads)  # read by the libraries as a new process loads them
            places = self._context.Value("i", 0)
            arguments = (self._stop, os.getpid(), self.threads, places, visible_gpus())
            self._executor = ProcessPoolExecutor(self.slots, self._context, _begin, arguments)
        return self._executor

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)


def threads_for(slots: int) -> int:
    """An equal share of the cores; ``OMP_NUM_THREADS`` decides where it is set."""
    return int(os.environ.get("OMP_NUM_THREADS") or max(1, cores() // slots))


def visible_gpus() -> list[str]:
    import torch

    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [name for name in listed.split(",") if name.strip()]
    return [str(number) for number in range(torch.cuda.device_count())]


def work(job: Job) -> Outcome:
    """A run in a worker process, without a word but for its files."""
    try:
        return execute(job, Reporter(quiet=True))
    except Interrupted:
        return Outcome("stopped")


def _work(job: Job) -> Outcome:
    """The same in a process of ours: one that is told to end, and not by ``stop``, must not wait for another run."""
    outcome = work(job)
    if outcome.status == "stopped" and not _told_to_stop():
        os._exit(1)
    return outcome


_told_to_stop: Callable[[], bool] = lambda: False  # noqa: E731  (a worker process puts its event here)


def _begin(stop: Any, parent: int, threads: int, places: Any, gpus: list[str]) -> None:
    """What a worker process is told first: its share of the machine, and when to end."""
    import torch

    global _told_to_stop
    _told_to_stop = stop.is_set
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C reaches the parent alone, which then asks all workers once
    torch.set_num_threads(threads)
    with places.get_lock():
        place = places.value
        places.value += 1
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[place % len(gpus)]
    threading.Thread(target=_watch, args=(stop, parent), daemon=True).start()


def _watch(stop: Any, parent: int) -> None:
    """End with the parent, however it ends; SIGTERM lets a run finish its step and save."""
    while not stop.wait(0.5) and os.getppid() == parent:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
