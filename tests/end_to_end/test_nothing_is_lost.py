"""The real command line, killed and interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from pmtrans.config import Config
from pmtrans.demo import run_demo
from pmtrans.errors import RunError
from pmtrans.training.train import train
from tiny_run import SETTINGS, Crash, Witness, assert_same_run, crash

HERE = Path(__file__).parent
SOAK = HERE.parents[1] / "benchmarks" / "soak.py"


def test_three_kills_change_nothing(tmp_path: Path) -> None:
    """The short form of ``make soak``: weights, metrics and predictions equal those of an untouched run."""
    report = tmp_path / "soak.json"
    short = ["--only", "kills", "--kills", "3", "--case", "two workers", "--report", str(report)]
    result = subprocess.run([sys.executable, SOAK, *short], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    found = json.loads(report.read_text(encoding="utf-8"))["sections"]["kills"]["two workers"]
    assert found["tried"] == 3
    assert found["faults"] == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_all_processes_saves_says_how_to_resume_and_the_run_ends_the_same(
    number: int, code: int, tmp_path: Path, images: Path, configure: Callable[..., Config], undisturbed: Path
) -> None:
    run = tmp_path / "run"
    settings = {**SETTINGS, "data.workers": 2, "train.max_steps": 6}
    overrides = [f"{key}={yaml.safe_dump(value, default_flow_style=True).strip()}" for key, value in settings.items()]
    overrides = [override.removesuffix("\n...") for override in overrides]
    arguments = ["train", "--source", str(images / "source"), "--target", str(images / "target"), "--out", str(run)]
    process = subprocess.Popen(
        [sys.executable, "-c", "from pmtrans.cli import main; main()", *arguments, *overrides],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal's Ctrl-C goes to the whole group, loader processes included
    )
    metrics = run / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.005)
    with pytest.raises(RunError, match=f"in use by process {process.pid}"):
        train(configure(), run, Witness())
    os.killpg(process.pid, number)
    said = process.communicate()[1]
    assert process.returncode == code, said
    last = said.splitlines()[-1]
    assert last.startswith(f"Stopped by {signal.Signals(number).name}; all progress is saved in {run}. Resume with")
    assert f"pmtrans train --source {images}/source" in last
    train(configure(), run, Witness())
    assert_same_run(run, undisturbed)


def test_the_demo_resumes_too(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    settings = ["train.max_steps=4", "train.evaluate_every=2"]
    with pytest.raises(Crash):
        run_demo(out, 0, "pmtrans", settings, Witness({3: crash}))
    (out / ".data-cut-short").mkdir()
    witness = Witness()
    run_demo(out, 0, "pmtrans", settings, witness)
    assert witness.steps == [3, 4, 1, 2, 3, 4]  # of the source stage, then of the method
    assert not (out / ".data-cut-short").exists()
    witness = Witness()
    run_demo(out, 0, "pmtrans", settings, witness)
    assert witness.steps == []
    assert f"Run {out} is finished already." in witness.said
