"""``check`` by several processes gives the report of one: every image measured once, in order, whoever is killed."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hostile_images import make_hostile_folder, noise
from killed_workers import killing_once
from pmtrans.data.checking.check import check_domains
from pmtrans.data.gate import UnavailableImage
from pmtrans.data.parallel import FileMap
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.errors import DataError
from pmtrans.processes import pool as pools
from pmtrans.processes.file_map import file_map
from pmtrans.processes.pool import LocalPool, Pool, RayPool

Result = TypeVar("Result")
soak = pytest.mark.skipif(not os.environ.get("PMTRANS_SOAK"), reason="takes half a minute: PMTRANS_SOAK=1")


@pytest.fixture
def domains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two folders of the working directory: broken files and odd ones in the source, 140 images in the target."""
    monkeypatch.chdir(tmp_path)
    make_hostile_folder(tmp_path / "source")
    (tmp_path / "target").mkdir()
    for number in range(140):
        noise(number % 130, (40, 36)).save(tmp_path / "target" / f"{number:03d}.png")


def report(files: FileMap | None = None) -> dict[str, Any]:
    source = read_source(Path("source"))
    made = check_domains(source, read_target(Path("target"), source.classes), files=files).as_json()
    return {key: value for key, value in made.items() if key not in ("seconds", "images_per_second")}


def one_killed(pool: Pool, mark: Path) -> FileMap:
    """The map of the pool, whose process is killed by one of the images, the first time."""
    mapped = file_map(pool)

    def files(function: Callable[[str], Result], paths: Sequence[str], title: str) -> list[Result]:
        return mapped(
            functools.partial(killing_once, function, os.path.join("target", "070.png"), str(mark)), paths, title
        )

    return files


def assert_same_report(pool: Pool, mark: Path) -> None:
    alone = report()
    assert len(alone["source"]["unreadable"]) > 5
    assert len(alone["duplicates"]["within_target"]) == 10
    assert report(one_killed(pool, mark)) == alone
    assert mark.exists(), "a process was killed"
    assert report(file_map(pool)) == alone


@pytest.mark.usefixtures("domains")
def test_two_processes_give_the_report_of_one_also_when_one_is_killed(tmp_path: Path) -> None:
    pool = LocalPool(2)
    try:
        assert_same_report(pool, tmp_path / "killed")
    finally:
        pool.close()


@soak
@pytest.mark.usefixtures("domains")
def test_ray_gives_the_report_of_one_process_also_when_a_worker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # its workers import what kills them
    pool = RayPool()
    try:
        assert_same_report(pool, tmp_path / "killed")
    finally:
        pool.close()


def unavailable(path: str) -> None:
    raise UnavailableImage(path, "the disk does not answer")


def test_what_is_wrong_with_a_machine_is_one_line_and_no_image_is_called_bad() -> None:
    pool = LocalPool(1)
    try:
        with pytest.raises(DataError, match=r"a\.png cannot be read now: the disk does not answer"):
            file_map(pool)(unavailable, ["a.png"], "checking")
        with pytest.raises(DataError, match=r"cannot open .*gone, where the paths start: no such file"):
            pools.enter("/gone")
    finally:
        pool.close()


def test_only_relative_paths_need_a_folder_to_start_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert pools.start_of(["/photos/1.png", "s3://bucket/a.tar/@512+9/1.png"]) is None
    assert pools.start_of(["/photos/1.png", "photos/2.png"]) == str(tmp_path)
