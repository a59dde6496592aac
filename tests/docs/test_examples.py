"""The examples run as they are, and end with what they promise."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

import pmtrans

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_script_adapts_predicts_and_writes_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: a new one would spend most of its time on imports."""
    monkeypatch.setattr(sys, "argv", ["two_folders.py", "--out", str(tmp_path), "--steps", "6"])
    runpy.run_path(str(EXAMPLES / "two_folders.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("verdict: ")]
    assert [line for line in lines if line.startswith("estimated accuracy: ")]
    answers = [line.split()[2] for line in lines if " -> " in line]
    assert len(answers) == 5  # each 48th of 10 x 24
    assert set(answers) <= set("0123456789")
    report = Path(lines[-1].removeprefix("report: "))
    assert report == tmp_path / "run" / "report.html"
    assert "<html" in report.read_text()


@pytest.fixture
def notebook() -> Any:
    return json.loads((EXAMPLES / "first_steps.ipynb").read_text())


def test_the_notebook_runs_from_top_to_bottom(notebook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "notebook"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), namespace)
    assert (tmp_path / "runs/first-steps/run/report.html").is_file()
    assert namespace["run"].summary.verdict in ("helped", "unchanged", "hurt", "cannot tell")
    assert {row.label for row in namespace["rows"]} <= set("0123456789")
    assert len(namespace["rows"]) == 5
    assert namespace["checked"].all_readable
    assert namespace["measured"].images == 240
    assert namespace["to_label"].read_text().count("\n") == 11
    assert namespace["comparison"].is_file()
    assert namespace["parity"].agreeing == namespace["parity"].images


def test_the_notebook_names_all_that_the_package_offers(notebook: Any) -> None:
    text = "".join(line for cell in notebook["cells"] for line in cell["source"])
    missing = [name for name in pmtrans.__all__ if name != "__version__" and f"pmtrans.{name}(" not in text]
    assert not missing


def test_the_notebook_carries_no_output(notebook: Any) -> None:
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 3
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
