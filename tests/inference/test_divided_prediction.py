"""Several processes give the file of one: the same bytes, also from shards and when a process is killed."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from killed_workers import killed_once
from pmtrans.data.packing import PackOptions, pack_folder
from pmtrans.inference.divided import divided_rows
from pmtrans.inference.inputs import PathList, gather
from pmtrans.inference.predict_files import PredictOptions, predict_to_file
from pmtrans.inference.predictor import load
from pmtrans.processes.pool import LocalPool, Pool, RayPool, map_in_order
from pmtrans.signals import Interrupted, StopRequest

OPTIONS = PredictOptions(batch_size=2)
soak = pytest.mark.skipif(not os.environ.get("PMTRANS_SOAK"), reason="takes half a minute: PMTRANS_SOAK=1")


@pytest.fixture
def photos(two_domains: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """18 images in shards, one of them broken."""
    monkeypatch.setenv("PMTRANS_CACHE", str(tmp_path / "cache"))
    (two_domains[1] / "ant" / "001.png").write_bytes(b"no image")
    pack_folder(two_domains[1], tmp_path / "shards", PackOptions(images_per_shard=7))
    return tmp_path / "shards"


def write(model: Path, photos: Path, out: Path, pool: Pool | None, stop: StopRequest | None = None) -> Any:
    images = gather([str(photos)], io.BytesIO())

    def rows_of(left: PathList) -> Any:
        assert pool is not None
        return divided_rows(pool, model, "cpu", left, OPTIONS, 0)

    ours = None if pool is None else rows_of
    return predict_to_file(
        load(model, "cpu"), model, images, out, OPTIONS, 0, lambda n: None, stop or StopRequest(), ours
    )


def test_two_processes_write_the_bytes_of_one_also_when_interrupted(
    saved_model: Callable[..., Path], photos: Path, tmp_path: Path
) -> None:
    model = saved_model()
    write(model, photos, tmp_path / "one.csv", None)
    stop = StopRequest()
    stop.signal = 15
    pool = LocalPool(2)
    try:
        with pytest.raises(Interrupted):
            write(model, photos, tmp_path / "two.csv", pool, stop)
        counts = write(model, photos, tmp_path / "two.csv", pool)
    finally:
        pool.close()
    assert (counts.images, counts.unreadable, counts.resumed_at) == (18, 1, 16)
    assert (tmp_path / "two.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()


@soak
def test_ray_writes_the_bytes_of_one_also_when_a_worker_is_killed(
    saved_model: Callable[..., Path], photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # its workers import what kills them
    model = saved_model()
    write(model, photos, tmp_path / "one.csv", None)
    pool = RayPool()
    try:
        write(model, photos, tmp_path / "two.csv", pool)
        pieces = [(number, str(tmp_path)) for number in range(12)]
        assert list(map_in_order(pool, killed_once, pieces)) == list(range(12))
        assert (tmp_path / "killed").exists()
    finally:
        pool.close()
    assert (tmp_path / "two.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
