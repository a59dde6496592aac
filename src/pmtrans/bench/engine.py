"""Where the runs of a suite execute: in this process, one by one, or in several local processes."""

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
from pmtrans.machine import CORES, refuse_many, share_of_cores, threads_for
from pmtrans.progress import Reporter
from pmtrans.signals import Interrupted


class Engine(Protocol):
    """Executes runs, at most ``slots`` at a time. ``lost``: exceptions of a future that mean its worker died."""

    slots: int
    lost: tuple[type[BaseException], ...]

    def submit(self, job: Job) -> Future[Outcome]: ...

    def stop(self) -> None:
        """Ask all runs to save and stop."""

    def close(self) -> None: ...


class Serial:
    """In this process; on a signal the run saves, and the signal is passed on."""

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


class LocalProcesses:
    """``slots`` processes that share the cores, and the GPUs if there are any."""

    lost: tuple[type[BaseException], ...] = (BrokenProcessPool,)

    def __init__(self, slots: int, threads: int | None = None) -> None:
        refuse_many(slots)
        self.slots = slots
        self.threads = threads or threads_for(slots)
        self._context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads and CUDA's state
        self._stop = self._context.Event()
        self._executor: ProcessPoolExecutor | None = None

    def submit(self, job: Job) -> Future[Outcome]:
        try:
            return self._pool().submit(_work, job)
        except BrokenProcessPool:  # one process was killed: the pool is replaced, and its runs are submitted again
            self._executor = None
            return self._pool().submit(_work, job)

    def _pool(self) -> ProcessPoolExecutor:
        if self._executor is None:
            os.environ["OMP_NUM_THREADS"] = str(self.threads)  # read by the libraries as a new process loads them
            next_index = self._context.Value("i", 0)
            share = share_of_cores(self.slots)
            arguments = (self._stop, os.getpid(), self.threads, share, next_index, visible_gpus())
            self._executor = ProcessPoolExecutor(self.slots, self._context, _start_worker, arguments)
        return self._executor

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)


def visible_gpus() -> list[str]:
    import torch

    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [name for name in listed.split(",") if name.strip()]
    return [str(number) for number in range(torch.cuda.device_count())]


def work(job: Job) -> Outcome:
    """A run in a worker process; prints nothing."""
    try:
        return execute(job, Reporter(quiet=True))
    except Interrupted:
        return Outcome("stopped")


def _work(job: Job) -> Outcome:
    """``work`` in a local process, which exits after a signal that did not come from ``stop``."""
    outcome = work(job)
    if outcome.status == "stopped" and not _stop_requested():
        os._exit(1)
    return outcome


_stop_requested: Callable[[], bool] = lambda: False  # noqa: E731  (set in each worker process)


def _start_worker(stop: Any, parent: int, threads: int, share: int, next_index: Any, gpus: list[str]) -> None:
    """Initialise a worker process: its threads, its share of the cores, its GPU, and when to stop."""
    import torch

    global _stop_requested
    _stop_requested = stop.is_set
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C reaches the parent only, which then stops the workers
    torch.set_num_threads(threads)
    os.environ[CORES] = str(share)
    with next_index.get_lock():
        index = next_index.value
        next_index.value += 1
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[index % len(gpus)]
    threading.Thread(target=_watch, args=(stop, parent), daemon=True).start()


def _watch(stop: Any, parent: int) -> None:
    """Stop on request or when the parent dies; SIGTERM lets a run finish its step and save."""
    while not stop.wait(0.5) and os.getppid() == parent:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
