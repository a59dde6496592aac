"""Several processes give the file of one: the same bytes, also from shards and when a process is killed."""

from __future__ import annotations

import functools
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from killed_workers import predicting_killed_once
from pmtrans.data.packing import PackOptions, pack_folder
from pmtrans.inference import divided
from pmtrans.inference.inputs import PathList, gather
from pmtrans.inference.predict_files import PredictOptions, predict_to_file
from pmtrans.inference.predictor import load
from pmtrans.processes.pool import LocalPool, Pool
from pmtrans.processes.ray_dataset import RayPool
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
        return divided.divided_rows(pool, model, "cpu", left, OPTIONS, 0)

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
def test_ray_writes_the_bytes_of_one_also_when_a_worker_is_killed_and_the_command_interrupted(
    saved_model: Callable[..., Path], photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # its workers import what kills them
    model = saved_model()
    write(model, photos, tmp_path / "one.csv", None)
    mark = tmp_path / "killed"
    monkeypatch.setattr(divided, "_PIECE", 2)  # five pieces, so that work is under way when the worker is killed
    monkeypatch.setattr(divided, "predict_piece", functools.partial(predicting_killed_once, str(mark)))
    stop = StopRequest()
    stop.signal = 15
    pool = RayPool()
    try:
        with pytest.raises(Interrupted):
            write(model, photos, tmp_path / "two.csv", pool, stop)
        counts = write(model, photos, tmp_path / "two.csv", pool)
    finally:
        pool.close()
    assert mark.exists(), "a worker was killed"
    assert (counts.images, counts.unreadable, counts.resumed_at) == (18, 1, 4)
    assert (tmp_path / "two.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
