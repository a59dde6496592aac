"""Work divided among processes: in order, each piece once, whoever is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from killed_workers import always_killed, killed_once, squared
from pmtrans.errors import TrainingError
from pmtrans.processes.pool import LocalPool, map_in_order


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
