"""Pieces of work as the rows of a Ray Data dataset, mapped by actors: one row in, one row out, in order.

An actor keeps what it has loaded, such as a model on its GPU, from piece to piece. When it is killed, Ray starts it
again and repeats its pieces; what it had given back stays.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, redirect_stdout
from itertools import islice
from typing import Any, TypeVar

from pmtrans.errors import ConfigError, TrainingError
from pmtrans.processes.ray_cluster import RETRIES, RayCluster

Piece = TypeVar("Piece")
Result = TypeVar("Result")
KILLED = f"A process was killed {RETRIES + 1} times at the same images: is memory short?"
_IN_FLIGHT = 2  # pieces per actor: one that it computes, one that it computes next
_DATASET = 256  # pieces per actor: all pieces of a dataset are in the object store, so millions of images are several


class RayPool:
    """Actors of a Ray cluster, local or at an address, whose machines all see the images and the model."""

    def __init__(self, address: str | None = None, cpus: float = 1, gpus: float = 0) -> None:
        try:
            import ray.data
        except ImportError:
            raise ConfigError("--engine ray needs Ray Data: pip install 'pmtrans[ray]'.") from None
        self._data: Any = ray.data
        self._cluster = RayCluster(address, cpus, gpus)
        self._quiet = ExitStack()
        self._quiet.enter_context(redirect_stdout(sys.stderr))  # Ray prints there that a worker was killed
        _use_up_warning(self._cluster.ray)

    def map_in_order(self, function: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
        remaining = iter(pieces)
        while several := list(islice(remaining, _DATASET * self._cluster.slots)):
            yield from self._map(function, several)

    def _map(self, function: Callable[[Piece], Result], pieces: Sequence[Piece]) -> Iterator[Result]:
        exceptions = self._cluster.ray.exceptions
        try:
            for row in self._dataset(function, pieces).iter_rows():
                yield pickle.loads(row["bytes"])
        except (exceptions.RayActorError, exceptions.OutOfMemoryError):
            raise TrainingError(KILLED) from None

    def _dataset(self, function: Callable[[Piece], Result], pieces: Sequence[Piece]) -> Any:
        """Rows are bytes: Arrow has no type for any path or for any result, and would change some on the way.

        Paths have much in common: compressed, they take a tenth of the object store.
        """
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what is wrong is raised as well
        items = [{"bytes": zlib.compress(pickle.dumps(piece), 1)} for piece in pieces]
        size = min(self._cluster.slots, len(items))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # retries have no other place yet; pyproject.toml bounds Ray's version
            dataset = self._data.from_items(items, override_num_blocks=len(items)).map(
                _Worker,
                fn_constructor_args=(function,),
                compute=self._data.ActorPoolStrategy(size=size, max_tasks_in_flight_per_actor=_IN_FLIGHT),
                max_restarts=-1,  # of an actor: on machines that come and go, a long job loses many
                max_task_retries=RETRIES,  # of a piece
                **self._cluster.share,
            )
        context = dataset.context  # of this dataset only
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        context.raise_original_map_exception = True
        return dataset

    def close(self) -> None:
        self._cluster.close()
        self._quiet.close()


class _Worker:
    """In an actor: ``function`` of the piece in a row."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    def __call__(self, row: dict[str, bytes]) -> dict[str, bytes]:
        return {"bytes": pickle.dumps(self._function(pickle.loads(zlib.decompress(row["bytes"]))))}


def _use_up_warning(ray: Any) -> None:
    """Have Ray say now, to nobody, what its C++ part says once in a process about actors that may be restarted.

    It warns that their arguments may leave the object store; a dataset holds those of its actors as long as it runs.
    Every log level that leaves this line out adds another one.
    """
    try:
        stderr = os.dup(2)
    except OSError:  # closed: there is nobody to disturb
        return
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)
        ray.kill(ray.remote(num_cpus=0, max_restarts=1)(_Worker).remote(ray.put(None)))
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
