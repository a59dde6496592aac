"""Every file of a run folder, forged: noticed in one line or harmless, never a traceback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import tiny_run
from pmtrans.config import Config
from pmtrans.errors import ConfigError, TrainingError, UserError
from pmtrans.progress import Reporter
from pmtrans.report.page import write_report
from pmtrans.run.folder import RunFolder
from pmtrans.settings import load_config
from pmtrans.training.finished import read_finished
from pmtrans.training.train import train

FORGERIES: dict[str, bytes] = {
    "empty": b"",
    "null": b"null",
    "list": b"[1, 2]",
    "number": b"7",
    "object": b'{"step": "x", "seconds": [], "evaluations": {}, "evidence": true}',
    "deep": b"[" * 3000,
    "digits": b"9" * 5000,
    "bytes": b"\xff\xfe\x00",
    "markup": b'{"<script>alert(7)": "<script>alert(7)"}',
}
FILES = (
    "config.yaml", "data.json", "classes.json", "metrics.jsonl", "finished.json", "summary.json", "environment.json",
    "evidence.safetensors", "model/config.json", "model/model.safetensors", "probe/finished.json",
    "probe/model/config.json", "probe/evidence.safetensors",
)  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path]:
    home = tiny_run.write_domains(tmp_path_factory.mktemp("forged"))
    domains = {"data.source": str(home / "source"), "data.target": str(home / "target"), "selection.game": False}
    config = load_config(None, [], {**tiny_run.SETTINGS, **domains, "train.max_steps": 2})
    train(config, home / "run", Reporter(quiet=True))
    return config, home


def said(action: Any) -> str:
    """A line, or a word where all is well; anything but an error for users fails the test."""
    try:
        action()
    except (UserError, TrainingError) as error:
        return str(error)
    return "fine"


@pytest.mark.parametrize("file", FILES)
def test_a_forged_file_is_noticed_or_harmless_when_the_run_is_resumed(
    finished: tuple[Config, Path], tmp_path: Path, file: str
) -> None:
    config, home = finished
    for name in ("null", "object", "deep"):
        run = tmp_path / name
        shutil.copytree(home / "run", run)
        assert (run / file).is_file()
        if name != "null":  # the conclusion is made again, from what the stages left
            (run / "summary.json").unlink()
        (run / file).write_bytes(FORGERIES[name])
        text = said(lambda: train(config, run, Reporter(quiet=True)))  # noqa: B023
        assert "\n" not in text
        assert len(text) < 2000


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_report_of_a_run_with_forged_files_is_a_page_or_one_line(
    finished: tuple[Config, Path], tmp_path: Path, forgery: str
) -> None:
    _, home = finished
    shutil.copytree(home / "run", tmp_path / "run")
    for file in ("data.json", "environment.json", "metrics.jsonl", "evidence.safetensors", "model/config.json"):
        (tmp_path / "run" / file).write_bytes(FORGERIES[forgery])
    text = said(lambda: write_report(tmp_path / "run", tmp_path / "page.html", figures=False))
    assert "\n" not in text
    if text == "fine":
        assert "<script>alert(7)" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_stage_whose_numbers_or_evidence_were_changed_is_not_finished(
    finished: tuple[Config, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, home = finished
    run = RunFolder(Path(shutil.copytree(home / "run", tmp_path / "run")))
    stored = json.loads(run.probe.finished.read_text(encoding="utf-8"))
    assert read_finished(run.probe) is not None
    run.probe.finished.write_text(json.dumps({**stored, "seconds": stored["seconds"] + 1}), encoding="utf-8")
    assert read_finished(run.probe) is None
    earlier = {key: value for key, value in stored.items() if key != "checksum"}
    run.probe.finished.write_text(json.dumps(earlier), encoding="utf-8")
    assert read_finished(run.probe) is not None
    run.probe.finished.write_text(json.dumps(stored), encoding="utf-8")
    evidence = bytearray(run.probe.evidence.read_bytes())
    evidence[-1] ^= 1
    run.probe.evidence.write_bytes(evidence)
    assert read_finished(run.probe) is None
    run.summary.unlink()  # so that the stages are read again
    train(config, run.path, Reporter())
    assert "evidence.safetensors was changed since it was written" in " ".join(capsys.readouterr().err.split())
    assert read_finished(run.probe) is not None
    assert (run.model / "model.safetensors").read_bytes() == (home / "run/model/model.safetensors").read_bytes()


def test_a_checkpoint_whose_forged_state_has_a_right_checksum_is_skipped(
    finished: tuple[Config, Path], tmp_path: Path
) -> None:
    from pmtrans.training.checkpoint import BrokenCheckpoint, _checksum, load_snapshot

    _, home = finished
    newest = sorted((home / "run" / "checkpoints").iterdir())[-1]
    forgeries: list[Any] = [[1], [{}], [{"step": "x"}], [{"step": 2, "score.bnm": "high"}], {"a": 1}, None, "text"]
    for evaluations in forgeries:
        folder = tmp_path / str(abs(hash(str(evaluations))))
        shutil.copytree(newest, folder)
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        del state["checksum"]
        state["evaluations"] = evaluations
        forged = {**state, "checksum": _checksum(folder, state)}
        (folder / "state.json").write_text(json.dumps(forged), encoding="utf-8")
        with pytest.raises(BrokenCheckpoint):
            load_snapshot(folder)


@pytest.mark.parametrize(
    "override",
    [
        'data.cache="a\\0b"', 'data.source="a\\0b"', 'backbone.weights="\\0"', f"seed={2**70}", "seed=-1",
        "data.workers=1000000", "data.image_size=1000000000",
        "train.batch_size=99999999999", "train.learning_rate=.nan",
        "method.name=[]", "method={}.x", "train.loggers=[1]", "backbone.options=7", "train.max_steps=0",
    ],
)  # fmt: skip
def test_impossible_settings_are_one_line(override: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, [override])
    assert "\n" not in str(caught.value)
