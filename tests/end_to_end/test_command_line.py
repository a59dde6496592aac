"""The real command line as a user starts it: expensive, so each test counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recounted import recount

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
PMTRANS = [sys.executable, "-c", "from pmtrans.cli import main; main()"]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from pmtrans.cli import app;"
        "assert CliRunner().invoke(app, ['train', '--help']).exit_code == 0;"
        "heavy = {'torch', 'timm', 'numpy', 'matplotlib', 'sklearn', 'PIL', 'yaml'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, check=True)


def test_the_demo_leaves_figures_and_a_summary_and_a_second_call_does_not_train(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    command = [*PMTRANS, "demo", "--out", str(out), "--seed", "3", "train.max_steps=4", "train.log_every=1"]
    first = subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    assert "Accuracy on the target" in first.stdout
    summary = json.loads((out / "summary.json").read_text())
    assert summary[summary["shipped"]] == pytest.approx(recount(out / "model", out / "data" / "target")[0])
    for name in ("losses", "beta", "accuracy", "mixed"):
        assert (out / "figures" / f"{name}.png").stat().st_size > 1000
        assert (out / "figures" / f"{name}.svg").stat().st_size > 1000
    assert (out / "model" / "model.safetensors").is_file()
    again = subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True)
    assert "finished already" in again.stderr
