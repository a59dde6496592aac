"""Work divided among processes: in order, each piece once, whoever is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from killed_workers import always_killed, held, killed_once, squared
from pmtrans.errors import TrainingError
from pmtrans.processes.pool import LocalPool, map_in_order, open_pool

PARENT = """
import sys
from killed_workers import held
from pmtrans.processes.pool import LocalPool

pool = LocalPool(2)
pool.submit(held, sys.argv[1])
pool.submit(held, sys.argv[1]).result()
"""


def started(folder: Path, count: int) -> list[psutil.Process]:
    """The processes of so many pieces that are ``held``."""
    deadline = time.monotonic() + 40
    while len(list(folder.iterdir())) < count:
        assert time.monotonic() < deadline, "the pieces were not begun in time"
        time.sleep(0.02)
    return [psutil.Process(int(file.name)) for file in folder.iterdir()]


def test_a_killed_process_loses_no_piece_and_repeats_none(tmp_path: Path) -> None:
    pool = LocalPool(2)
    try:
        assert list(map_in_order(pool, squared, range(1, 9))) == [n * n for n in range(1, 9)]
        pieces = [(number, str(tmp_path)) for number in range(12)]
        assert list(map_in_order(pool, killed_once, pieces)) == list(range(12))
        assert (tmp_path / "killed").exists()
        with pytest.raises(TrainingError, match="was killed 4 times at the same images"):
            list(map_in_order(pool, always_killed, [1]))
    finally:
        pool.close()


def test_no_process_outlives_a_killed_parent(tmp_path: Path) -> None:
    path = os.pathsep.join(sys.path)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], env={**os.environ, "PYTHONPATH": path})
    try:
        workers = started(tmp_path, 2)
    finally:
        parent.kill()
        parent.wait()
    left = psutil.wait_procs(workers, timeout=15)[1]
    for worker in left:
        worker.kill()
    assert not left


def test_who_is_interrupted_does_not_wait_for_the_pieces_under_way(tmp_path: Path) -> None:
    begun: list[psutil.Process] = []

    def interrupted() -> None:
        with open_pool(2, "local") as pool:
            assert pool is not None
            pool.submit(held, str(tmp_path))
            begun.extend(started(tmp_path, 1))
            raise KeyboardInterrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - begin < 50  # a piece that is held takes 60 s
    assert not begun[0].is_running()
