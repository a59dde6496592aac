"""Too few descriptors for loader processes, and an interruption before a command listens: one line each."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pmtrans import cli
from pmtrans.data import loader
from pmtrans.data.loader import image_batches
from pmtrans.data.transforms import Preprocessing
from pmtrans.errors import TrainingError

LOOKS = Preprocessing(8, 8, "bicubic", (0.5,) * 3, (0.25,) * 3)


@contextmanager
def descriptors_left(number: int) -> Iterator[None]:
    """So many more may be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + number, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are counted through /proc")
def test_loader_processes_are_not_started_where_descriptors_would_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [str(tmp_path / f"{number}.png") for number in range(4)]
    for path in paths:
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(path)
    started: list[int] = []
    fork = os.fork

    def counted() -> int:
        started.append(1)
        return fork()

    monkeypatch.setattr(os, "fork", counted)
    with descriptors_left(20), pytest.raises(TrainingError, match=r"Too many open files: raise .*ulimit -n"):
        list(image_batches(paths, LOOKS, 2, 2))
    assert not started
    with descriptors_left(20):
        assert len(list(image_batches(paths, LOOKS, 2, 0))) == 2  # this process alone needs none
    assert loader.DESCRIPTORS + 2 * loader.DESCRIPTORS_EACH < 64
    assert len(list(image_batches(paths, LOOKS, 2, 2))) == 2
    assert started


def test_an_interruption_before_a_command_listens_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "Interrupted.\n"
