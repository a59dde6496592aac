"""Work divided among processes of this machine or of a Ray cluster, its results in order, each exactly once.

A process that is killed loses nothing: its piece of work is done again by another. Only this process writes results.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeVar

from pmtrans.errors import ConfigError, DataError, TrainingError, one_line
from pmtrans.machine import cores

Piece = TypeVar("Piece")
Result = TypeVar("Result")
RETRIES = 3  # of a piece whose process was killed


class Pool(Protocol):
    """Does pieces of work, ``slots`` at a time. ``lost``: what a future raises when its process was killed."""

    slots: int
    lost: tuple[type[BaseException], ...]

    def submit(self, function: Callable[[Any], Any], piece: Any) -> Future[Any]: ...

    def close(self) -> None: ...


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
        self.slots = slots
        self._context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads and CUDA's state
        self._executor: ProcessPoolExecutor | None = None

    def submit(self, function: Callable[[Any], Any], piece: Any) -> Future[Any]:
        try:
            return self._pool().submit(function, piece)
        except BrokenProcessPool:
            self.close()
            return self._pool().submit(function, piece)

    def _pool(self) -> ProcessPoolExecutor:
        if self._executor is None:
            threads = int(os.environ.get("OMP_NUM_THREADS") or max(1, cores() // self.slots))
            arguments = (threads, self._context.Value("i", 0), _visible_gpus())
            self._executor = ProcessPoolExecutor(self.slots, self._context, _start, arguments)
        return self._executor

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None


def _visible_gpus() -> list[str]:
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [name for name in listed.split(",") if name.strip()]
    torch = sys.modules.get("torch")  # who has work for GPUs has imported it
    return [str(number) for number in range(torch.cuda.device_count() if torch is not None else 0)]


def _start(threads: int, next_index: Any, gpus: list[str]) -> None:
    """A process leaves Ctrl-C to its parent, and takes its share of the threads and one of the GPUs.

    Libraries read both as they are loaded, which is after this.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    with next_index.get_lock():
        index = next_index.value
        next_index.value += 1
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[index % len(gpus)]


class RayPool:
    """Tasks of a Ray cluster, local or at an address, whose machines all see the images and the model."""

    lost: tuple[type[BaseException], ...] = ()  # Ray itself gives the piece of a killed worker to another one

    def __init__(self, address: str | None = None, cpus: float = 1, gpus: float = 0) -> None:
        try:
            import ray
        except ImportError:
            raise ConfigError("--engine ray needs Ray: pip install 'pmtrans[ray]'.") from None
        self._ray = ray
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        local: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 80 * 2**20}
        self._owns_cluster = not ray.is_initialized()
        if self._owns_cluster:
            try:
                ray.init(address=address, log_to_driver=False, **(local if address == "local" else {}))
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise ConfigError(f"No Ray cluster at {one_line(address)!r}: {one_line(error, 150)}") from None
        total = ray.cluster_resources()
        asked = [(name, share) for name, share in (("CPU", cpus), ("GPU", gpus)) if share]
        for name, share in asked:
            if share > total.get(name, 0):
                self.close()
                raise ConfigError(f"A task asks for {share:g} {name}, the Ray cluster has {total.get(name, 0):g}.")
        self.slots = max(1, int(min((total[name] / share for name, share in asked), default=1)))
        kept = {name: os.environ[name] for name in ("PYTHONPATH", "PMTRANS_CACHE") if name in os.environ}
        threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, int(cpus)))
        self._options = {
            "num_cpus": cpus,
            "num_gpus": gpus,
            "max_retries": RETRIES,
            "retry_exceptions": False,
            "runtime_env": {"env_vars": {"OMP_NUM_THREADS": threads, **(kept if address == "local" else {})}},
        }
        self._remote: dict[Any, Any] = {}

    def submit(self, function: Callable[[Any], Any], piece: Any) -> Future[Any]:
        if function not in self._remote:
            self._remote[function] = self._ray.remote(function).options(**self._options)
        future: Future[Any] = self._remote[function].remote(piece).future()
        return future

    def close(self) -> None:
        if self._owns_cluster:
            self._ray.shutdown()


def unwrap(result: Result | str) -> Result:
    """What a piece of work gave; a text is the one line of what is wrong with the images or the machine."""
    if isinstance(result, str):
        raise DataError(result)
    return result
