"""What somebody else prepared: links in a received run, folders of another user, names in a shared folder."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pmtrans.errors import RunError
from pmtrans.files import LOCK, WriteError, new_folder, run_lock, write_json, write_text
from pmtrans.inference.journal import open_journal
from pmtrans.report.page import write_report
from pmtrans.run.folder import RunFolder, claim
from pmtrans.watching.ledger import open_ledger

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
NOBODY = 65534


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """What must survive."""
    folder = tmp_path / "elsewhere"
    (folder / "step-00000001").mkdir(parents=True)
    (folder / "step-00000001" / "precious").write_text("mine")
    (folder / ".model.7.tmp").write_text("mine")
    (folder / "file").write_text("mine")
    return folder


def untouched(folder: Path) -> bool:
    files = [folder / "step-00000001" / "precious", folder / ".model.7.tmp", folder / "file"]
    return [file.read_text() for file in files] == ["mine"] * 3


def received_run(folder: Path) -> Path:
    folder.mkdir()
    write_json(folder / "data.json", {})
    write_text(folder / "config.yaml", "seed: 0\n")
    return folder


PARTS = (".lock", "candidates", "checkpoints", "probe", "baseline", "metrics.jsonl", "model", "summary.json")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_linked_part_of_a_received_run_is_refused(
    tmp_path: Path, elsewhere: Path, part: str, overwrite: bool
) -> None:
    run = received_run(tmp_path / "run")
    (run / part).symlink_to(elsewhere / "file" if "." in part else elsewhere)
    with pytest.raises(RunError, match=r"is a link"), claim(RunFolder(run), overwrite):
        pass
    assert untouched(elsewhere)


def test_a_linked_checkpoint_and_a_stage_with_links_are_refused(tmp_path: Path, elsewhere: Path) -> None:
    for place in ("checkpoints/step-00000002", "baseline/candidates", "probe/.lock", "continued/checkpoints/step-1"):
        run = received_run(tmp_path / place.replace("/", "-"))
        (run / place).parent.mkdir(parents=True, exist_ok=True)
        (run / place).symlink_to(elsewhere)
        with pytest.raises(RunError, match="is a link"), claim(RunFolder(run)):
            pass
    assert untouched(elsewhere)


def test_a_lock_that_is_a_second_name_of_a_file_is_refused(tmp_path: Path, elsewhere: Path) -> None:
    run = received_run(tmp_path / "run")
    os.link(elsewhere / "file", run / LOCK)
    with pytest.raises(RunError, match="is a link"), run_lock(run):
        pass
    assert untouched(elsewhere)


def test_a_run_folder_may_itself_be_reached_through_a_link(tmp_path: Path) -> None:
    received_run(tmp_path / "run")
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    with claim(RunFolder(tmp_path / "latest")):
        assert (tmp_path / "run" / LOCK).is_file()


@as_root
def test_parts_of_another_user_are_refused_by_a_user(tmp_path: Path) -> None:
    """In a process of its own that is not root; the tests' folders are opened for it."""
    run = received_run(tmp_path / "run")
    for path in (tmp_path, *tmp_path.parents):
        if Path(tempfile.gettempdir()) in path.parents:
            os.chmod(path, 0o777)
    os.chmod(run, 0o777)
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom pmtrans.run.folder import RunFolder, claim\n"
        "from pmtrans.errors import RunError\nos.setuid(65534)\n"
        "try:\n    claim(RunFolder(Path(sys.argv[1]))).__enter__()\nexcept RunError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(run)], capture_output=True, text=True, check=True)
    assert "belongs to another user" in done.stdout
    assert not (run / LOCK).exists()


def test_a_temporary_name_that_is_a_link_is_not_written_through(tmp_path: Path, elsewhere: Path) -> None:
    (tmp_path / f".out.json.{os.getpid()}.tmp").symlink_to(elsewhere / "file")
    write_json(tmp_path / "out.json", [1])
    assert untouched(elsewhere)
    assert (tmp_path / "out.json").read_text() == "[\n  1\n]\n"


def test_an_output_that_is_a_link_is_replaced_not_followed(tmp_path: Path, elsewhere: Path) -> None:
    (tmp_path / "report.html").symlink_to(elsewhere / "file")
    write_text(tmp_path / "report.html", "new")
    assert untouched(elsewhere)
    assert not (tmp_path / "report.html").is_symlink()


@pytest.mark.parametrize("kind", ["link", "owner", "linked rows"])
def test_partial_results_that_another_user_prepared_are_not_used(tmp_path: Path, elsewhere: Path, kind: str) -> None:
    partial = tmp_path / ".out.csv.partial"
    if kind == "link":
        partial.symlink_to(elsewhere)
    else:
        partial.mkdir()
    if kind == "linked rows":
        (partial / "rows.jsonl").symlink_to(elsewhere / "file")
    if kind == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(partial, NOBODY, NOBODY)
    refused = pytest.raises(RunError, match=r"is a link|belongs to another user")
    with refused, open_journal(tmp_path / "out.csv", "fingerprint", 4):
        pass
    assert untouched(elsewhere)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_failed_write_names_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError) as caught:
        write_text(tmp_path / "file" / "inside.json", "x")
    assert caught.value.filename == str(tmp_path / "file" / "inside.json")
    with pytest.raises(WriteError) as caught, new_folder(tmp_path / "model"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.filename == str(tmp_path / "model")
    with pytest.raises(WriteError, match="null"):
        write_text(tmp_path / "a\0b", "x")
    assert not list(tmp_path.glob(".*"))


def test_a_report_and_a_watch_write_into_no_linked_folder(trained_run: Path, tmp_path: Path, elsewhere: Path) -> None:
    run = Path(shutil.copytree(trained_run, tmp_path / "run", ignore=shutil.ignore_patterns("figures")))
    for name in ("figures", "watch"):
        (run / name).symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    with pytest.raises(RunError, match=r"figures' is a link"):
        write_report(run)
    with pytest.raises(RunError, match=r"watch' is a link"), open_ledger(run / "watch", "x", 8, 0.1):
        pass
    assert sorted(elsewhere.rglob("*")) == before
