"""Outputs that cannot be written: one line and an exit code, whatever is full, closed or read-only."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from pmtrans import cli
from pmtrans.cli.predict import _standard_output
from pmtrans.errors import RunError, TrainingError
from pmtrans.files import WriteError, is_leftover, settle, write_text
from pmtrans.inference.journal import open_journal
from pmtrans.inference.output import columns, writer_for
from pmtrans.progress import Reporter

PROGRAM = [sys.executable, "-m", "pmtrans", "--version"]
full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@full
def test_a_full_standard_output_is_one_line() -> None:
    with open("/dev/full", "wb") as disk:
        ended = subprocess.run(PROGRAM, stdout=disk, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert ended.stderr == "error: The output cannot be written: No space left on device.\n"


@full
def test_where_nothing_can_be_said_the_exit_code_says_it() -> None:
    with open("/dev/full", "wb") as disk:
        ended = subprocess.run(PROGRAM, stdout=disk, stderr=disk, timeout=120, check=False)
    assert ended.returncode == 1


@full
@pytest.mark.parametrize(("error", "code"), [(RunError("no run"), 2), (TrainingError("not finite"), 1)])
def test_an_error_that_cannot_be_said_keeps_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    def fail() -> None:
        raise error

    with open("/dev/full", "w", encoding="utf-8") as disk:
        monkeypatch.setattr(cli, "app", fail)
        monkeypatch.setattr(sys, "stderr", disk)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == code
        assert os.path.samestat(os.fstat(disk.fileno()), os.stat(os.devnull))  # what is left to flush has a place


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            WriteError(errno.ENOSPC, "No space left on device", "out\n.csv"),
            "'out\\\\n.csv' cannot be written: No space",
        ),
        (WriteError(errno.EROFS, "Read-only file system", "/run"), "'/run' cannot be written: Read-only file system."),
        (PermissionError(errno.EACCES, "Permission denied", "images"), "'images': Permission denied."),
    ],
)
def test_a_fault_of_the_machine_is_one_line_with_its_path(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: OSError, line: str
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    monkeypatch.setattr(cli, "_silence", lambda: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    said = capfd.readouterr().err
    assert said.startswith(f"error: {line}")
    assert said.count("\n") == 1


@full
def test_a_reporter_without_a_terminal_to_talk_to_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = open("/dev/full", "w", buffering=1, encoding="utf-8")  # noqa: SIM115
    reporter = Reporter()
    monkeypatch.setattr(reporter.console, "file", disk)
    reporter.note("a line that finds no room")
    reporter.warn("nor this one")
    with pytest.raises(OSError, match="No space"):  # what they did not raise
        disk.write("x\n")
    with pytest.raises(OSError, match="No space"):
        disk.close()


def test_names_that_are_not_utf8_go_into_parquet(tmp_path: Path) -> None:
    row = dict.fromkeys(columns(2)) | {"path": "\udcff.png", "class": "c\udcfe", "class_2": "\udcfd", "abstain": False}
    writer_for(tmp_path / "out.parquet")(tmp_path / "out.parquet", [row], columns(2))
    stored = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()[0]
    assert stored["path"] == "\\udcff.png"
    assert stored["class"] == "c\\udcfe"


def test_temporaries_of_a_name_with_a_line_break_are_tidied_up(tmp_path: Path) -> None:
    left = tmp_path / ".a\nb.csv.123.tmp"
    left.write_text("", encoding="utf-8")
    assert is_leftover(left.name)
    settle(tmp_path)
    assert not left.exists()


def test_parquet_into_a_place_that_is_not_utf8(tmp_path: Path) -> None:
    row = dict.fromkeys(columns(1)) | {"path": "a.png", "class": "c", "abstain": False}
    out = tmp_path / "\udcff.parquet"
    writer_for(out)(out, [row], columns(1))
    with out.open("rb") as file:
        assert pyarrow.parquet.read_table(file).num_rows == 1


def test_predictions_into_a_path_with_a_nul_are_refused_in_one_line(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "a\0b.csv", "of something", 1)
    with pytest.raises(RunError, match=r"^.* cannot be written: embedded null byte\.$"), journal:
        pass


def test_predictions_to_a_closed_standard_output_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # what Python makes of a closed one
    monkeypatch.setattr(cli, "_silence", lambda: None)

    def write() -> None:
        with _standard_output():
            pass

    monkeypatch.setattr(cli, "app", write)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capfd.readouterr().err == "error: The output cannot be written: Bad file descriptor.\n"


@pytest.mark.parametrize(
    "text",
    ["unable to open file <model.safetensors> in read-only mode: Too many open files (24)",
     "Too many open files. Communication with the workers is no longer possible. Please increase the limit"],
)  # fmt: skip
def test_descriptors_that_run_out_inside_torch_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    def fail() -> None:
        raise RuntimeError(text)

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    said = capfd.readouterr().err
    assert said.startswith("error: Too many open files: raise the limit")
    assert said.count("\n") == 1


def test_a_bug_is_not_called_a_fault_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_device_or_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WriteError, match="a device or a pipe"):
        write_text(tmp_path / "pipe", "a page")
    assert (tmp_path / "pipe").is_fifo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]
