from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pmtrans import files
from pmtrans.files import new_folder, settle, write_json, write_text

REPLACE_FOR_EVER = """
import sys
from pathlib import Path
from pmtrans.files import new_folder, write_text
number = 0
while True:
    number += 1
    with new_folder(Path(sys.argv[1])) as folder:
        (folder / "one").write_text(str(number))
        (folder / "two").write_text(str(number))
    write_text(Path(sys.argv[1] + ".txt"), f"{number}\\n" * 1000)
    print(number, flush=True)
"""


def test_a_folder_that_is_replaced_is_never_missing(tmp_path: Path) -> None:
    folder, other = tmp_path / "model", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    if not files._exchange(folder, other):
        pytest.skip("the promise is made for file systems that can exchange two names at once; this one cannot")
    process = subprocess.Popen([sys.executable, "-c", REPLACE_FOR_EVER, str(folder)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        made: set[int] = set()
        looked, end = 0, time.monotonic() + 60
        while (looked < 20_000 or len(made) < 20) and time.monotonic() < end:
            made.add(folder.stat().st_mtime_ns)  # raises where it is missing
            looked += 1
        assert len(made) >= 20, "replaced while it was looked at"
    finally:
        process.kill()
        process.wait()


def test_a_kill_at_any_moment_leaves_whole_files_and_settle_removes_the_rest(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    for delay in (0.0, 0.001, 0.003, 0.007, 0.011, 0.02):
        process = subprocess.Popen([sys.executable, "-c", REPLACE_FOR_EVER, str(folder)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        settle(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.txt"]
        assert (folder / "one").read_text() == (folder / "two").read_text()
        lines = Path(f"{folder}.txt").read_text().split("\n")
        assert len(lines) == 1001
        assert len(set(lines[:-1])) == 1


def test_a_folder_that_was_being_replaced_goes_back_to_its_place(tmp_path: Path) -> None:
    (tmp_path / ".model.77.old").mkdir()
    (tmp_path / ".model.77.old" / "weights").write_text("old")
    (tmp_path / ".model.77.tmp").mkdir()
    (tmp_path / ".metrics.jsonl.77.tmp").write_text("half")
    (tmp_path / ".kept").touch()
    settle(tmp_path)
    assert (tmp_path / "model" / "weights").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".kept", "model"]


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    write_text(tmp_path / "a.json", "old")
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"not": object()})

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        files.write_atomically(tmp_path / "a.json", fail)
    assert (tmp_path / "a.json").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_whose_filling_fails_leaves_the_old_one(tmp_path: Path) -> None:
    def fill(text: str) -> None:
        with new_folder(tmp_path / "model") as folder:
            (folder / "weights").write_text(text)
            if text == "half":
                raise OSError(28, "No space left on device")

    fill("old")
    with pytest.raises(OSError, match="No space"):
        fill("half")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model" / "weights").read_text() == "old"
