"""A signal to all processes of a run must not end its loader processes, whenever it comes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pmtrans.data import loader
from pmtrans.data.transforms import Preprocessing
from tiny_run import write_images

PREPROCESSING = Preprocessing(32, 32, "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@pytest.mark.skipif(not hasattr(signal, "sigwaitinfo"), reason="this system does not tell who sent a signal")
def test_a_signal_before_a_loader_process_is_ready_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = loader._leave_signals_to_the_main_process

    def signalled_first(worker: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        ready(worker)

    monkeypatch.setattr(loader, "_leave_signals_to_the_main_process", signalled_first)
    write_images(tmp_path / "images")
    paths = sorted(map(str, (tmp_path / "images").glob("*/*")))
    batches = list(loader.image_batches(paths, PREPROCESSING, 4, workers=2))
    assert sum(len(images) for images, _ in batches) == len(paths)
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())  # the main process hears it again
