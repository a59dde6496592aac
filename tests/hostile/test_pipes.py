"""A pipe or a device in the place of a file of ours is refused at once: a pipe would block, a device never end."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import pmtrans
from pmtrans.errors import ConfigError, ModelError
from pmtrans.files import checksum, regular
from pmtrans.processes.environment import whole_number
from pmtrans.processes.group import joined
from pmtrans.report.material import read_material
from pmtrans.run.folder import RunFolder
from pmtrans.training.checkpoint import BrokenCheckpoint, load_snapshot
from pmtrans.training.finished import read_finished


def replace(path: Path, by: str) -> None:
    path.unlink()
    if by == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained_run, tmp_path / "run"))


@pytest.mark.parametrize("by", ["pipe", "device"])
def test_no_file_of_a_run_blocks(by: str, run: Path) -> None:
    replace(run / "model" / "model.safetensors", by)
    with pytest.raises(ModelError, match="not a regular file"):
        pmtrans.load(run)
    snapshot = max((run / "checkpoints").iterdir())
    replace(snapshot / "tensors.safetensors", by)
    with pytest.raises(BrokenCheckpoint):
        load_snapshot(snapshot)
    replace(run / "evidence.safetensors", by)
    assert read_finished(RunFolder(run)) is None
    assert read_material(run).evidence is None
    with pytest.raises(OSError, match="not a regular file"):
        checksum(run / "evidence.safetensors")
    assert regular(run / "config.yaml") == run / "config.yaml"


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"WORLD_SIZE": ""}, "WORLD_SIZE of the environment is '', not a whole number"),
        ({"WORLD_SIZE": "9" * 5000}, "WORLD_SIZE of the environment is '9+…', not a whole number"),
        ({"WORLD_SIZE": "9" * 20, "RANK": "0", "MASTER_ADDR": "127.0.0.1"}, "WORLD_SIZE of the environment is"),
        ({"RANK": "-1"}, "RANK of the environment is '-1'"),
        ({"LOCAL_RANK": "x"}, "LOCAL_RANK of the environment is 'x'"),
        ({"WORLD_SIZE": "2", "RANK": "x"}, "RANK of the environment is 'x'"),
        ({"WORLD_SIZE": "2", "RANK": "5"}, "RANK must be 0 to 1"),
        ({"WORLD_SIZE": "2"}, "RANK must be 0 to 1"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "MASTER_ADDR not where they meet"),
        ({"WORLD_SIZE": "2", "RANK": "0", "PMTRANS_LAUNCHER": "x"}, "PMTRANS_LAUNCHER of the environment is 'x'"),
    ],
)
def test_a_strange_environment_is_one_line(environment: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said), joined(environment):
        pass
    assert whole_number({"RANK": "3"}, "RANK", 0) == 3
