"""Nothing is left behind: ranks end with their launcher, loaders with their run, and no folder comes back in part."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

import tiny_run
from pmtrans import files
from pmtrans.data import loader
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.loader import pair_batches
from pmtrans.data.sampling import PairSampler, Stream
from pmtrans.data.transforms import Preprocessing
from pmtrans.errors import TrainingError
from pmtrans.files import LOCK, WriteError, new_folder, run_lock, write_json
from pmtrans.run.folder import RunFolder
from pmtrans.settings import load_config
from pmtrans.training.failures import explained_faults
from pmtrans.training.train import train

LAUNCHER = """
import os, subprocess, sys, time
told = {"PMTRANS_LAUNCHER": str(os.getpid())} if sys.argv[2] == "launch" else {"TORCHELASTIC_RUN_ID": "a run"}
rank = subprocess.Popen([sys.executable, "-c", sys.argv[1]], env={**os.environ, **told})
print(rank.pid, flush=True)
time.sleep(100)
"""
OBEYS = "from pmtrans.processes.environment import *\nend_with_launcher(os.environ)\ntime.sleep(100)"
STUBBORN = (
    "import signal\nfrom pmtrans.processes.environment import *\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "end_with_launcher(os.environ, grace=0.5)\nwhile True: pass"
)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found through /proc")
@pytest.mark.parametrize(("rank", "by"), [(OBEYS, "launch"), (STUBBORN, "launch"), (OBEYS, "torchrun")])
def test_a_rank_ends_with_its_killed_launcher(rank: str, by: str) -> None:
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, rank, by], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    number = int(launcher.stdout.readline())
    time.sleep(0.5)
    assert is_alive(number)
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    deadline = time.monotonic() + 15
    while is_alive(number) and time.monotonic() < deadline:
        time.sleep(0.05)
    ended = not is_alive(number)
    if not ended:
        os.kill(number, signal.SIGKILL)
    assert ended


LOADER = """
import os, sys, time
from pmtrans.data import loader
main = os.getpid()
if os.fork():
    print("ready", flush=True)
    time.sleep(100)
loader._leave_signals_to_the_main_process(0)
if sys.argv[1] == "killed":
    while os.getppid() == main:
        time.sleep(0.001)
try:
    raise ConnectionResetError("of the main process")
except ConnectionResetError:
    sys.excepthook(*sys.exc_info())  # as multiprocessing's thread does that hands over tensors
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="loader processes are forks")
@pytest.mark.parametrize("main", ["killed", "alive"])
def test_a_loader_says_nothing_of_the_connection_to_a_killed_run(main: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LOADER, main], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    if main == "alive":
        time.sleep(3)
    process.kill()
    said = process.communicate(timeout=60)[1]  # ends when the loader has closed it too
    assert ("ConnectionResetError" in said) == (main == "alive")


def never(image: Image.Image) -> Tensor:
    time.sleep(30)
    return torch.zeros(3, 8, 8)


def test_a_loader_that_does_not_answer_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "ANSWER_WITHIN", 2)
    monkeypatch.setattr(loader, "_LOOK_EVERY", 1)
    tiny_run.write_images(tmp_path / "images", images=2)
    paths = tuple(str(path) for path in sorted((tmp_path / "images").rglob("*.png")))
    source = LabelledDomain(Domain(tmp_path, paths), (0, 0, 1, 1), ("a", "b"))
    batches = pair_batches(
        source,
        Domain(tmp_path, paths),
        never,
        PairSampler((Stream(0, "source", 4), Stream(0, "target", 4)), 2, 0, 2),
        0,
        Preprocessing(8, 8, "bicubic", (0.5,) * 3, (0.5,) * 3),
        workers=1,
    )
    silent = pytest.raises(TrainingError, match=r"^A loader process gave no batch for ")
    with silent, explained_faults(RunFolder(tmp_path / "run")):
        next(iter(batches))


@pytest.mark.parametrize("how", ["removed", "renamed", "replaced"])
def test_a_locked_folder_that_is_gone_is_not_made_again(tmp_path: Path, how: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with run_lock(run):
        write_json(run / "before.json", 1)
        if how == "removed":
            shutil.rmtree(run)
        else:
            run.rename(tmp_path / "elsewhere")
        if how == "replaced":
            run.mkdir()
            (run / LOCK).write_text("somebody else's")
        for write in (lambda: write_json(run / "after.json", 2), lambda: new_folder(run / "model").__enter__()):
            with pytest.raises(WriteError, match="removed or renamed"):
                write()
    assert not (run / "after.json").exists()
    assert run.exists() == (how == "replaced")


def test_a_run_whose_folder_is_removed_stops_in_one_line_and_leaves_no_part_of_it(tmp_path: Path) -> None:
    tiny_run.write_domains(tmp_path)
    domains = {"data.source": str(tmp_path / "source"), "data.target": str(tmp_path / "target")}
    run = tmp_path / "run"
    gone = tmp_path / "gone"  # at once: removed file by file, it would wait for the checkpoint that is being written
    witness = tiny_run.Witness({3: lambda: run.rename(gone)})
    with pytest.raises(TrainingError, match=r"^Run folder .* cannot be written: .*"):
        train(load_config(None, [], {**tiny_run.SETTINGS, **domains}), run, witness)
    assert not run.exists()


def test_a_folder_that_vanishes_after_the_look_at_its_lock_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    look = files._still_there

    def look_and_remove(descriptor: int, folder: Path) -> bool:
        found = look(descriptor, folder)
        shutil.rmtree(folder)
        return found

    with run_lock(run):
        monkeypatch.setattr(files, "_still_there", look_and_remove)
        with pytest.raises(WriteError):
            write_json(run / "deep" / "after.json", 2)
    assert not run.exists()
