from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pmtrans.config import Config
from pmtrans.errors import RunError
from pmtrans.run.folder import RunFolder, claim
from pmtrans.run.provenance import describe_run, refuse_differences

DATA = {"source": {"images": 3, "names": "a"}, "target": {"images": 4, "names": "b"}}


def make_run(path: Path) -> RunFolder:
    folder = RunFolder(path)
    with claim(folder):
        describe_run(folder, Config(), DATA)
    return folder


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_anything_else_in_it_is_refused_and_left_alone(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "config.yaml").write_text("somebody else's")
    (tmp_path / "photo.jpg").touch()
    with (
        pytest.raises(RunError, match=r"is in use and is no run: choose another --out\.$"),
        claim(RunFolder(tmp_path), overwrite),
    ):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "photo.jpg"]


def test_a_file_as_output_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="is a file, not a folder"), claim(RunFolder(tmp_path / "file")):
        pass


def test_a_start_cut_short_before_the_configuration_was_written_begins_anew(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    folder.config.unlink()
    (tmp_path / "run" / ".data-k3s9").mkdir()
    (tmp_path / "run" / ".config.yaml.123.tmp").write_text("seed:")
    with claim(folder):
        assert not folder.is_run
        assert not (tmp_path / "run" / ".config.yaml.123.tmp").exists()


def test_overwriting_empties_a_run_checkpoints_before_their_log(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    for part in (folder.path, folder.baseline.path):
        (part / "checkpoints" / "step-00000001").mkdir(parents=True)
        (part / "metrics.jsonl").touch()
    removed: list[str] = []
    watching = {"on": True}

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if watching["on"] and event in ("os.remove", "os.rmdir", "shutil.rmtree"):
            removed.append(Path(str(arguments[0])).name)

    sys.addaudithook(watch)
    with claim(folder, overwrite=True):
        watching["on"] = False
        assert sorted(path.name for path in folder.path.iterdir()) == [".lock"]
    last_checkpoint = max(place for place, name in enumerate(removed) if name == "checkpoints")
    assert last_checkpoint < removed.index("metrics.jsonl")
    assert removed[-1] == "config.yaml"


def test_a_run_stays_when_it_is_claimed_again(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    with claim(folder):
        assert folder.is_run
        refuse_differences(folder, Config(), DATA)


def test_a_configuration_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    for text in ("seed: [", "!!python/object/apply:os.system ['touch owned']", "- a list", ""):
        folder.config.write_text(text)
        with pytest.raises(RunError, match=r"has a config\.yaml or data\.json that cannot be read: --overwrite it"):
            refuse_differences(folder, Config(), DATA)


def test_at_most_five_differences_are_shown_each_escaped(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    other = Config.model_validate({"seed": 1, "data": {"path_column": "\x1b[31mred\n", "source": "moved"}})
    with pytest.raises(RunError) as refusal:
        refuse_differences(folder, other, DATA)
    assert r"(data.path_column: None -> \x1b[31mred\n; seed: 0 -> 1)" in str(refusal.value)
    assert str(refusal.value).isprintable()
