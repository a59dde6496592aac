"""An output never replaces a part of the run that it is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from pmtrans.errors import RunError
from pmtrans.files import WriteError
from pmtrans.report.comparison import write_comparison
from pmtrans.report.page import write_report
from pmtrans.run.folder import RunFolder, refuse_own_part


@pytest.mark.parametrize(
    "name", ["config.yaml", "model/model.safetensors", "metrics.jsonl", "model", "baseline/finished.json", ".lock"]
)
def test_a_part_of_the_run_is_refused_as_output(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    for out in (tmp_path / "run" / name, tmp_path / "link" / name, tmp_path / "run" / ".." / "run" / name):
        with pytest.raises(RunError, match=r"is a part of the run itself: choose another file\.$"):
            refuse_own_part(out, tmp_path / "other", tmp_path / "run")


@pytest.mark.parametrize("name", ["report.html", "new.csv", "model/model.onnx", "../config.yaml", "new/data.json"])
def test_beside_the_parts_of_a_run_there_is_room(tmp_path: Path, name: str) -> None:
    refuse_own_part(tmp_path / "run" / name, tmp_path / "run")


def test_a_path_with_a_nul_is_an_error_of_writing(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="embedded null"):
        refuse_own_part(Path(f"{tmp_path}/a\0b.csv"), tmp_path / "run")


def test_a_link_to_itself_is_no_part(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    refuse_own_part(tmp_path / "loop", tmp_path / "run")


def test_a_report_over_the_configuration_leaves_it_as_it_was(tmp_path: Path) -> None:
    config = RunFolder(tmp_path).config
    config.write_text("seed: 0\n")
    with pytest.raises(RunError, match="part of the run itself"):
        write_report(tmp_path, config)
    with pytest.raises(RunError, match="part of the run itself"):
        write_comparison([tmp_path], config)
    assert config.read_text() == "seed: 0\n"
