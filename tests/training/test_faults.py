from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pmtrans.config import Config
from pmtrans.errors import RunError, TrainingError
from pmtrans.training.checkpoint import checkpoints, load_snapshot
from pmtrans.training.train import train
from tiny_run import Witness, assert_same_run, once_saved

Configure = Callable[..., Config]


def names(run: Path) -> list[str]:
    return [path.name for path in checkpoints(run / "checkpoints")]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with room for one checkpoint and a candidate (400 KB) and not for two."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=750k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount a small disk to fill; test_checkpoint.py fills one by RLIMIT_FSIZE")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_keeps_the_checkpoint_before_and_the_run_resumes_when_there_is_room(
    small_disk: Path, configure: Configure, undisturbed: Path
) -> None:
    run = small_disk / "run"
    with pytest.raises(TrainingError, match=r"cannot be written: No space left on device; checkpoint .*2 is whole"):
        train(configure(), run, Witness())
    assert names(run) == ["step-00000002"]
    assert load_snapshot(run / "checkpoints" / "step-00000002").step == 2
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
    train(configure(), run, Witness())
    assert_same_run(run, undisturbed)


def test_a_folder_on_a_read_only_disk_is_refused_in_one_line(small_disk: Path, configure: Configure) -> None:
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
    train(configure(), small_disk / "run", Witness())
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(RunError, match=r"cannot be written: Read-only file system\.$"):
        train(configure(), small_disk / "run", Witness())
    with pytest.raises(RunError, match=r"cannot be made: Read-only file system\.$"):
        train(configure(), small_disk / "new", Witness())


def test_a_folder_that_becomes_read_only_stops_the_run_and_loses_nothing(
    tmp_path: Path, configure: Configure, undisturbed: Path
) -> None:
    run = tmp_path / "run"
    folder = run / "checkpoints"
    as_root = os.geteuid() == 0  # whom permission bits do not stop, but the immutable flag does

    def lock() -> None:
        subprocess.run(["chattr", "+i", folder] if as_root else ["chmod", "555", folder], check=True)

    try:
        with pytest.raises(TrainingError, match=r"cannot be written: .*(not permitted|denied); checkpoint .* is whole"):
            train(configure(), run, Witness({3: once_saved(run, "step-00000002", lock)}))
    except subprocess.CalledProcessError:
        pytest.skip("root writes any folder but an immutable one, a flag that this file system lacks")
    finally:
        subprocess.run(["chattr", "-i", folder] if as_root else ["chmod", "755", folder])
    assert names(run) == ["step-00000002"]
    train(configure(), run, Witness())
    assert_same_run(run, undisturbed)


@pytest.mark.parametrize("harm", ["truncated", "changed", "state changed", "file missing", "a pickle"])
def test_a_broken_checkpoint_is_passed_over_and_the_one_before_is_used(
    harm: str, cut: Path, configure: Configure, undisturbed: Path
) -> None:
    newest = cut / "checkpoints" / "step-00000004"
    tensors, state = newest / "tensors.safetensors", newest / "state.json"
    if harm == "truncated":
        os.truncate(tensors, tensors.stat().st_size // 2)
    elif harm == "changed":
        content = bytearray(tensors.read_bytes())
        content[-1] ^= 1
        tensors.write_bytes(content)
    elif harm == "state changed":
        state.write_text(state.read_text().replace('"step": 4', '"step": 3'))
    elif harm == "file missing":
        tensors.unlink()
    else:
        state.write_bytes(pickle.dumps({"format": 1}))
    witness = Witness()
    train(configure(), cut, witness)
    assert any("checkpoint step-00000004 is skipped: it" in line for line in witness.said)
    assert witness.steps == [3, 4, 5, 6]
    assert_same_run(cut, undisturbed)


def test_when_no_checkpoint_is_whole_training_begins_again_and_says_so(
    cut: Path, configure: Configure, undisturbed: Path
) -> None:
    for path in checkpoints(cut / "checkpoints"):
        (path / "state.json").write_text('{"format": 1, "step"')
    witness = Witness()
    train(configure(train__keep_checkpoints=1), cut, witness)
    assert "no checkpoint is whole: training begins again" in witness.said
    assert_same_run(cut, undisturbed)
    assert names(cut) == ["step-00000006"]


def test_a_checkpoint_of_another_format_is_refused_and_nothing_is_lost(cut: Path, configure: Configure) -> None:
    state = cut / "checkpoints" / "step-00000004" / "state.json"
    state.write_text(state.read_text().replace('"format": 2', '"format": 3'))
    with pytest.raises(RunError, match=r"has format 3, this version of pmtrans reads 2: resume with the version that"):
        train(configure(), cut, Witness())
    assert names(cut) == ["step-00000002", "step-00000004"]


def test_a_killed_loader_process_stops_the_run_with_one_line_and_it_resumes(
    tmp_path: Path, configure: Configure
) -> None:
    """Of forty steps: of six, all images may be loaded before the process is killed, and nothing be missed."""
    run, whole = tmp_path / "run", tmp_path / "whole"
    forty = {"train__max_steps": 40, "train__epochs": 99, "train__evaluate_every": 2}

    def kill() -> None:
        multiprocessing.active_children()[0].kill()
        time.sleep(5)  # cut short by the news of it; later it might come while another process is being started

    with pytest.raises(TrainingError, match=r"A loader process was killed .*; checkpoint .* is whole\. Give the same"):
        train(configure(data__workers=2, **forty), run, Witness({3: once_saved(run, "step-00000002", kill)}))
    train(configure(**forty), run, Witness())
    train(configure(**forty), whole, Witness())
    assert_same_run(run, whole)


def test_an_image_that_vanishes_stops_the_run_after_the_last_whole_step(
    tmp_path: Path, configure: Configure, undisturbed: Path, images: Path
) -> None:
    run = tmp_path / "run"

    def vanish() -> None:
        os.rename(images / "target", images / "away")

    with pytest.raises(TrainingError, match=r"/target/\w+/\d\.png: no such file\. Restore it"):
        train(configure(), run, Witness({3: vanish}))
    os.rename(images / "away", images / "target")
    assert names(run) == ["step-00000002", "step-00000003"]
    train(configure(), run, Witness())
    assert_same_run(run, undisturbed)


def test_a_loss_that_is_not_finite_stops_before_the_step_and_leaves_a_capture(
    tmp_path: Path, configure: Configure
) -> None:
    run = tmp_path / "run"
    config = configure(train__learning_rate=1e30)
    with pytest.raises(TrainingError, match=r"not finite at step 1: stopped before the step, nothing was overwritten"):
        train(config, run, Witness())
    capture = json.loads((run / "not-finite-step-00000001.json").read_text())
    assert {"loss", "classification", "gradient_norm", "beta_b", "beta_g"} <= capture["values"].keys()
    assert capture["values"]["loss"] in ("nan", "inf")
    assert capture["learning_rates"]["learning_rate.feature_extractor"] > 1e29
    assert len(capture["source_index"][0]) == len(capture["target_index"][0]) == 4
    assert all(Path(path).is_file() for path in capture["source_images"] + capture["target_images"])
    assert capture["what_to_try"]
    assert names(run) == []  # the first would have been written after step 2


def test_nothing_listens_on_the_network_while_training(tmp_path: Path, configure: Configure) -> None:
    listening: list[str] = []

    def look() -> None:
        processes = [os.getpid(), *(child.pid or 0 for child in multiprocessing.active_children())]
        sockets = {
            os.readlink(entry) for pid in processes for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()
        }
        for table in ("tcp", "tcp6", "udp", "udp6"):
            for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] in ("0A", "07") and f"socket:[{columns[9]}]" in sockets:
                    listening.append(line)

    if not Path("/proc/net/tcp").exists():
        pytest.skip("open ports are read from /proc/net, which only Linux has")
    witness = Witness({2: look})
    train(configure(data__workers=2), tmp_path / "run", witness)
    assert witness.at == {}
    assert listening == []
