"""Work divided among processes of this machine or of a Ray cluster, its results in order, each exactly once.

A process that is killed loses nothing: its piece of work is done again by another. Only this process writes results.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Protocol, TypeVar

from pmtrans.addresses import is_remote
from pmtrans.errors import DataError, TrainingError, one_line
from pmtrans.machine import CORES, refuse_many, share_of_cores, threads_for
from pmtrans.processes.ray_cluster import RETRIES, RayCluster
from pmtrans.signals import end_after

Piece = TypeVar("Piece")
Result = TypeVar("Result")


class Pool(Protocol):
    """Does pieces of work, ``slots`` at a time. ``lost``: what a future raises when its process was killed."""

    slots: int
    lost: tuple[type[BaseException], ...]

    def submit(self, function: Callable[[Any], Any], piece: Any) -> Future[Any]: ...

    def close(self) -> None: ...

    def abandon(self) -> None:
        """Close it, and end the work under way, whose results nobody awaits."""


def map_in_order(pool: Pool, function: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """``function`` of every piece, in order; at most two pieces a slot are under way or wait for their turn."""
    remaining = iter(pieces)
    waiting: deque[tuple[Piece, Future[Result]]] = deque()
    lost = 0
    while True:
        while len(waiting) < 2 * pool.slots and (piece := next(remaining, None)) is not None:
            waiting.append((piece, pool.submit(function, piece)))
        if not waiting:
            return
        try:
            result = waiting[0][1].result()
        except pool.lost:
            lost += 1
            if lost > RETRIES:
                raise TrainingError(f"A process was killed {lost} times at the same images: is memory short?") from None
            undone = [(piece, future) for piece, future in waiting if not _is_done(future)]
            again = {id(future): pool.submit(function, piece) for piece, future in undone}
            waiting = deque((piece, again.get(id(future), future)) for piece, future in waiting)
            continue
        lost = 0
        waiting.popleft()
        yield result


def _is_done(future: Future[Any]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


class LocalPool:
    """``slots`` processes that share the cores, and the GPUs where there are any."""

    lost: tuple[type[BaseException], ...] = (BrokenProcessPool,)

    def __init__(self, slots: int) -> None:
        refuse_many(slots)
        self.slots = slots
        self._context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads and CUDA's state
        self._executor: ProcessPoolExecutor | None = None
        self._held, self._lifeline = self._context.Pipe(duplex=False)  # closed here, however that comes, all end

    def submit(self, function: Callable[[Any], Any], piece: Any) -> Future[Any]:
        try:
            return self._pool().submit(function, piece)
        except BrokenProcessPool:
            self.close()
            return self._pool().submit(function, piece)

    def _pool(self) -> ProcessPoolExecutor:
        if self._executor is None:
            share = share_of_cores(self.slots)
            arguments = (self._held, threads_for(self.slots), share, self._context.Value("i", 0), _visible_gpus())
            self._executor = ProcessPoolExecutor(self.slots, self._context, _start, arguments)
        return self._executor

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None

    def abandon(self) -> None:
        self._lifeline.close()
        self.close()


def _visible_gpus() -> list[str]:
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [name for name in listed.split(",") if name.strip()]
    torch = sys.modules.get("torch")  # who has work for GPUs has imported it
    return [str(number) for number in range(torch.cuda.device_count() if torch is not None else 0)]


def _start(lifeline: Connection, threads: int, share: int, next_index: Any, gpus: list[str]) -> None:
    """A process leaves Ctrl-C to its parent, and takes its share of threads and cores and one of the GPUs.

    Libraries read them as they are loaded, which is after this. It ends with its parent, however that ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_after(partial(_loss, lifeline))
    os.environ |= {"OMP_NUM_THREADS": str(threads), CORES: str(share)}
    with next_index.get_lock():
        index = next_index.value
        next_index.value += 1
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[index % len(gpus)]


def _loss(lifeline: Connection) -> None:
    """Until its other end is closed; nothing is ever sent."""
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()


class RayPool:
    """Tasks of a Ray cluster, local or at an address, whose machines all see the images and the model."""

    lost: tuple[type[BaseException], ...] = ()  # Ray itself gives the piece of a killed worker to another one

    def __init__(self, address: str | None = None, cpus: float = 1, gpus: float = 0) -> None:
        self._cluster = RayCluster(address, cpus, gpus)
        self.slots = self._cluster.slots
        self._remote: dict[Any, Any] = {}

    def submit(self, function: Callable[[Any], Any], piece: Any) -> Future[Any]:
        if function not in self._remote:
            self._remote[function] = self._cluster.remote(function)
        future: Future[Any] = self._remote[function].remote(piece).future()
        return future

    def close(self) -> None:
        self._cluster.close()

    abandon = close


@contextmanager
def open_pool(
    processes: int, engine: str, address: str | None = None, cpus: float = 1, gpus: float = 0
) -> Iterator[Pool | None]:
    """What ``--processes`` and ``--engine`` name; None: this process alone."""
    if engine == "local" and processes == 1:
        yield None
        return
    pool: Pool = RayPool(address, cpus, gpus) if engine == "ray" else LocalPool(processes)
    try:
        yield pool
    except BaseException:
        pool.abandon()
        raise
    pool.close()


def unwrap(result: Result | str) -> Result:
    """What a piece of work gave; a text is the one line of what is wrong with the images or the machine."""
    if isinstance(result, str):
        raise DataError(result)
    return result


def start_of(paths: Sequence[str]) -> str | None:
    """The folder that another process must be in to find these paths; None: they are the same from anywhere."""
    return None if all(os.path.isabs(path) or is_remote(path) for path in paths) else os.getcwd()


def enter(start: str | None) -> None:
    """In a process of the pool: go where relative paths start. A machine of a cluster may lack that folder."""
    if start is None:
        return
    try:
        os.chdir(start)
    except OSError as error:
        machine = one_line(platform.node())
        reason = (error.strerror or "").lower()
        raise DataError(f"{machine} cannot open {one_line(start)}, where the paths start: {reason}.") from None
