"""What runs before a commit and on a pull request is what ``make`` runs, with the same versions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from pmtrans.run.folder import RunFolder

ROOT = Path(__file__).parents[1]


def read_yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def recipe(target: str) -> list[str]:
    """The commands of a Makefile target, without ``$(BIN)/``."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    assert found
    return [line.strip().removeprefix("$(BIN)/") for line in found[1].splitlines()]


def test_a_commit_passes_the_commands_of_make_lint() -> None:
    ruff, local = read_yaml(".pre-commit-config.yaml")["repos"]
    assert [hook["id"] for hook in ruff["hooks"]] == ["ruff-check", "ruff-format"]
    entries = [hook["entry"].removeprefix(".venv/bin/") for hook in local["hooks"]]
    assert ["ruff check", "ruff format --check", *entries] == recipe("lint")


def test_ruff_is_the_one_of_the_lock() -> None:
    ruff, _ = read_yaml(".pre-commit-config.yaml")["repos"]
    assert f"ruff=={ruff['rev'].removeprefix('v')}\n" in (ROOT / "requirements.lock").read_text()


def test_a_pull_request_runs_make_test_on_the_oldest_python_that_is_promised() -> None:
    (job,) = read_yaml(".github/workflows/test.yml")["jobs"].values()
    (command,) = [step["run"] for step in job["steps"] if "run" in step]
    assert command.split()[:2] == ["make", "test"]
    oldest = job["strategy"]["matrix"]["python"][0]
    assert f'requires-python = ">={oldest}"' in (ROOT / "pyproject.toml").read_text()


def test_the_bug_report_asks_for_what_a_run_and_the_command_line_really_have() -> None:
    form = read_yaml(".github/ISSUE_TEMPLATE/bug_report.yml")
    asked = {part["id"] for part in form["body"] if "id" in part}
    assert {"command", "error", "environment", "check"} <= asked
    text = (ROOT / ".github/ISSUE_TEMPLATE/bug_report.yml").read_text()
    assert "environment.json" in text
    assert RunFolder(ROOT).environment.name == "environment.json"
    assert "pmtrans check --source SOURCE --target TARGET --json" in text


def test_every_test_that_the_security_page_names_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/.]+)`", (ROOT / "SECURITY.md").read_text()))
    assert len(named) > 3
    assert {name for name in named if not (ROOT / name).is_file()} == set()
