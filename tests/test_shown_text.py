"""Names from users are shown as they are: no markup, no terminal codes, no line breaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pmtrans.cli import app, running
from pmtrans.progress import Reporter
from pmtrans.settings import load_config
from pmtrans.training.train import train
from tiny_run import write_images

EVIL = "[bold]x:dog:\x1b[31m\nb\x07"
SHOWN = r"[bold]x:dog:\x1b[31m\nb\x07"


def assert_harmless(text: str) -> None:
    assert "\x1b" not in text
    assert "\x07" not in text
    assert SHOWN in text


def test_messages(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter()
    reporter.note(f"note {EVIL}")
    reporter.warn(f"warn {EVIL}")
    said = capsys.readouterr().err
    assert_harmless(said)
    assert said.splitlines() == [f"note {SHOWN}", f"warning: warn {SHOWN}"]


def test_the_command_to_resume_with(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["pmtrans", "train", "--out", EVIL, "--overwrite", "--resume", "old/run", "--resume=x", "seed=1"]
    monkeypatch.setattr("sys.argv", arguments)
    said = running._resume_command()
    assert_harmless(said)
    assert said == f"pmtrans train --out '{SHOWN}' seed=1"


def test_class_names_and_paths_from_training_to_evaluation(
    tmp_path: Path, tiny_settings: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / EVIL
    write_images(home / "source", ("ant", EVIL))
    write_images(home / "target", ("ant", EVIL, f"unknown {EVIL}"))
    domains = {"data.source": str(home / "source"), "data.target": str(home / "target"), "train.baseline": False}
    train(load_config(None, tiny_settings, domains), home / "run", Reporter())
    assert_harmless(capsys.readouterr().err)
    shown = CliRunner().invoke(
        app, ["evaluate", str(home / "run"), "--data", str(home / "target")], env={"COLUMNS": "200"}
    )
    assert shown.exit_code == 0
    assert_harmless(shown.stdout)
