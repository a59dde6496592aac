"""A run on shards is the run on the folders that were packed: batch by batch, resumed or not, in any process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import shard_batches
from pmtrans.config import Config
from pmtrans.data.batch import Batch
from pmtrans.data.cache import ImageCache
from pmtrans.data.packing import PackOptions, pack_folder
from pmtrans.errors import UserError
from pmtrans.progress import Reporter
from pmtrans.training.train import train
from shard_batches import batches, digests
from tiny_run import Crash, Witness, assert_same_run, crash


@pytest.fixture
def shards(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PMTRANS_CACHE", str(tmp_path / "cache"))
    for name in ("source", "target"):
        pack_folder(images / name, tmp_path / "shards" / name, PackOptions(images_per_shard=3))
    return tmp_path / "shards"


@pytest.fixture
def on_shards(configure: Callable[..., Config], shards: Path) -> Callable[..., Config]:
    def make(**changes: Any) -> Config:
        source = str(shards / "source" / "source-{000..003}.tar")
        return configure(data__source=source, data__target=str(shards / "target" / "*.tar"), **changes)

    return make


def assert_equal(one: list[Batch], other: list[Batch]) -> None:
    assert len(one) == len(other) == 3
    for first, second in zip(one, other, strict=True):
        for name in Batch.__dataclass_fields__:
            assert torch.equal(getattr(first, name), getattr(second, name)), name


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_a_pack_are_those_of_its_folder(images: Path, shards: Path, tmp_path: Path, workers: int) -> None:
    expected = batches(images / "source", images / "target")
    cache = ImageCache(tmp_path / "resized", lambda text: pytest.fail(text))
    cache.prepare()
    for kept in (None, cache, cache):  # the second time from the cache
        assert_equal(batches(shards / "source", shards / "target", workers=workers, cache=kept), expected)


def test_two_processes_read_their_share_and_one_of_them_makes_each_index(
    images: Path, shards: Path, tmp_path: Path
) -> None:
    for index in (tmp_path / "cache" / "shards").glob("*.index"):  # those that packing made
        index.unlink()
    places = [str(shards / "source"), str(shards / "target")]
    running = [
        subprocess.Popen(
            [sys.executable, str(Path(shard_batches.__file__)), *places, str(rank)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [json.loads(process.communicate(timeout=120)[0]) for process in running]
    made = [shard for one in said for shard in one["made"]]
    assert sorted(made) == sorted(str(shard) for shard in shards.rglob("*.tar"))  # each once, whoever was first
    for rank in (0, 1):
        expected = digests(batches(images / "source", images / "target"), slice(2 * rank, 2 * rank + 2))
        assert said[rank]["pixels"] == expected


def test_a_run_on_shards_with_workers_that_crashed_ends_as_the_run_on_folders(
    on_shards: Callable[..., Config], undisturbed: Path, tmp_path: Path
) -> None:
    with pytest.raises(Crash):
        train(on_shards(data__workers=2), tmp_path / "run", Witness({5: crash}))
    resumed = Witness()
    train(on_shards(data__workers=1), tmp_path / "run", resumed)
    assert resumed.steps[0] == 5
    assert_same_run(tmp_path / "run", undisturbed)


def test_a_run_on_folders_is_resumed_on_their_shards(
    on_shards: Callable[..., Config], cut: Path, undisturbed: Path
) -> None:
    """Provenance compares what the data are, not where."""
    train(on_shards(), cut, Reporter(quiet=True))
    assert_same_run(cut, undisturbed)


def test_a_shard_that_vanishes_stops_the_run_in_one_line(
    on_shards: Callable[..., Config], shards: Path, tmp_path: Path
) -> None:
    gone = shards / "target" / "target-001.tar"
    with pytest.raises(Exception, match=r"target-001\.tar cannot be read now: the shard vanished") as raised:
        train(on_shards(), tmp_path / "run", Witness({1: gone.unlink}))
    assert len(str(raised.value).splitlines()) == 1
    with pytest.raises(UserError, match=r"The target has changed since run|there is no such file"):
        train(on_shards(), tmp_path / "run", Reporter(quiet=True))
