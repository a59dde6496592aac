"""Pieces of work through Ray Data. Ray is stood in for, but for the test with real actors (PMTRANS_SOAK=1)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from killed_workers import always_killed, killed_once, squared
from pmtrans.errors import ConfigError, TrainingError
from pmtrans.processes.ray_dataset import RayPool
from pmtrans.signals import stop_on_signals


class Dataset:
    """The calls of a dataset that the pool makes, done in this process."""

    def __init__(self, rows: list[Any], made: list[Dataset]) -> None:
        self.rows, self.made = rows, made
        self.context = SimpleNamespace(execution_options=SimpleNamespace())
        self.options: dict[str, Any] = {}

    def map(self, worker: Any, *, fn_constructor_args: tuple[Any, ...], **options: Any) -> Dataset:
        self.options, self.worker = options, worker(*fn_constructor_args)
        self.made.append(self)
        return self

    def iter_rows(self) -> Iterator[Any]:
        yield from map(self.worker, self.rows)


@pytest.fixture
def datasets(monkeypatch: pytest.MonkeyPatch) -> list[Dataset]:
    """A cluster of three CPUs; what is made on it."""
    made: list[Dataset] = []

    class Died(Exception): ...

    def init(**options: Any) -> None:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))  # as Ray does

    def remote(**options: Any) -> Any:
        return lambda worker: SimpleNamespace(remote=lambda *arguments: None)

    data: Any = ModuleType("ray.data")
    data.from_items = lambda items, override_num_blocks: Dataset(items, made)
    data.ActorPoolStrategy = SimpleNamespace
    ray: Any = ModuleType("ray")
    ray.data = data
    ray.exceptions = SimpleNamespace(RayActorError=Died, OutOfMemoryError=Died)
    ray.init, ray.is_initialized, ray.shutdown = init, lambda: False, lambda: None
    ray.cluster_resources = lambda: {"CPU": 3.0}
    ray.remote, ray.kill, ray.put = remote, lambda actor: None, lambda value: value
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.data", data)
    return made


def same(piece: Any) -> Any:
    return piece


@pytest.mark.usefixtures("datasets")
def test_what_arrow_has_no_type_for_comes_back_as_it_was() -> None:
    pieces = [os.fsdecode(b"caf\xe9.png"), None, {"error": None, "top": [1, "a"]}, (1.5, 2), "ending in a NUL\0"]
    pool = RayPool()
    try:
        assert list(pool.map_in_order(same, pieces)) == pieces
    finally:
        pool.close()


def test_a_dataset_holds_some_hundred_pieces_per_actor_and_the_next_ones_wait(datasets: list[Dataset]) -> None:
    taken: list[int] = []

    def pieces() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    pool = RayPool()
    try:
        results = pool.map_in_order(squared, pieces())
        assert next(results) == 0
        assert len(taken) == 768
        assert list(results) == [number * number for number in range(1, 1000)]
    finally:
        pool.close()
    assert [len(dataset.rows) for dataset in datasets] == [768, 232]
    assert all(dataset.context.execution_options.preserve_order for dataset in datasets)
    assert all(dataset.options["max_task_retries"] == 3 for dataset in datasets)


def test_there_are_no_more_actors_than_pieces(datasets: list[Dataset]) -> None:
    pool = RayPool(cpus=0.5)
    try:
        assert list(pool.map_in_order(squared, [3, 4])) == [9, 16]
        assert list(pool.map_in_order(squared, range(20))) == [number * number for number in range(20)]
    finally:
        pool.close()
    assert [dataset.options["compute"].size for dataset in datasets] == [2, 6]


@pytest.mark.usefixtures("datasets")
def test_sigterm_is_still_a_request_to_stop_while_ray_runs() -> None:
    with stop_on_signals() as stop:
        pool = RayPool()
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.signal == signal.SIGTERM
        finally:
            pool.close()


@pytest.mark.usefixtures("datasets")
def test_what_ray_prints_does_not_get_into_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    pool = RayPool()
    print("(raylet) a worker died")
    pool.close()
    print("the report")
    assert capsys.readouterr() == ("the report\n", "(raylet) a worker died\n")


@pytest.mark.usefixtures("datasets")
def test_a_cluster_that_does_not_start_in_time_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: Any) -> None:
        raise Exception("The current node timed out during startup.")  # Ray's own type for it

    monkeypatch.setattr(sys.modules["ray"], "init", init)
    with pytest.raises(TrainingError, match="Ray did not start: The current node timed out"):
        RayPool()


def test_without_ray_data_the_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(ConfigError, match=r"needs Ray Data: pip install 'pmtrans\[ray\]'"):
        RayPool()


@pytest.mark.skipif(not os.environ.get("PMTRANS_SOAK"), reason="takes two minutes: PMTRANS_SOAK=1")
def test_a_killed_actor_loses_no_piece_and_one_that_is_always_killed_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # its workers import what kills them
    pool = RayPool()
    try:
        assert list(pool.map_in_order(squared, range(1, 9))) == [number * number for number in range(1, 9)]
        assert capfd.readouterr() == ("", ""), "Ray is quiet while nothing is wrong"
        pieces = [(number, str(tmp_path)) for number in range(12)]
        assert list(pool.map_in_order(killed_once, pieces)) == list(range(12))
        assert (tmp_path / "killed").exists()
        with pytest.raises(TrainingError, match="was killed 4 times at the same images"):
            list(pool.map_in_order(always_killed, [1, 2, 3]))
        with pytest.raises(OSError, match="No such file"):
            list(pool.map_in_order(opened, ["gone"]))
        unfinished = pool.map_in_order(squared, range(500))
        assert next(unfinished) == 0
        del unfinished  # closed
        assert list(pool.map_in_order(squared, [5])) == [25], "the CPUs are free again"
    finally:
        pool.close()
    assert capfd.readouterr().out == ""


def opened(path: str) -> None:
    open(path).close()
