"""The contract of ``pmtrans check`` for scripts: one JSON object, and exit codes 0, 1 and 2."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner, Result

from pmtrans.cli.check import check
from pmtrans.errors import UserError


@pytest.fixture
def domains(tmp_path: Path) -> tuple[Path, Path]:
    generator = np.random.default_rng(0)
    for name in ("source/bike", "source/mug", "target"):
        (tmp_path / name).mkdir(parents=True)
        for number in range(6):
            Image.fromarray(generator.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(
                tmp_path / name / f"{number}.png"
            )
    return tmp_path / "source", tmp_path / "target"


def run(*arguments: object) -> Result:
    app = typer.Typer()
    app.command()(check)
    return CliRunner().invoke(app, [os.fspath(a) if isinstance(a, Path) else str(a) for a in arguments])


def test_json_is_one_object_with_the_promised_keys(domains: tuple[Path, Path]) -> None:
    source, target = domains
    result = run("--source", source, "--target", target, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert {"source", "target", "duplicates", "domain_gap", "warnings"} <= found.keys()
    assert found["source"]["images"] == 12
    assert found["source"]["classes"] == {"bike": 6, "mug": 6}
    assert found["source"]["unreadable"] == []
    assert found["target"]["images"] == 6
    assert found["target"]["classes"] == {}
    assert {key: found["duplicates"][key] for key in ("within_source", "within_target", "across")} == {
        "within_source": [],
        "within_target": [],
        "across": [],
    }
    assert found["domain_gap"] is None  # six images are too few
    assert any("bike (6)" in warning for warning in found["warnings"])


def test_an_unreadable_file_is_listed_and_is_exit_code_1(domains: tuple[Path, Path]) -> None:
    source, target = domains
    bad = os.path.join(os.fsencode(target), b"bad\xff\nname.jpg")
    with open(bad, "wb") as file:
        file.write(b"text")
    result = run("--source", source, "--target", target, "--json")
    assert result.exit_code == 1
    (unreadable,) = json.loads(result.stdout)["target"]["unreadable"]
    assert os.fsencode(unreadable["path"]) == bad
    assert unreadable["reason"]
    text = run("--source", source, "--target", target)
    assert text.exit_code == 1
    lines = [line for line in text.stdout.splitlines() if line.startswith("unreadable: ")]
    assert len(lines) == 1
    assert "name.jpg" in lines[0]


def test_a_leak_is_in_the_groups_across(domains: tuple[Path, Path]) -> None:
    source, target = domains
    (target / "same.png").write_bytes((source / "mug" / "3.png").read_bytes())
    result = run("--source", source, "--target", target, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["duplicates"]["across"] == [[str(source / "mug" / "3.png"), str(target / "same.png")]]
    assert any(warning.startswith("leak: ") for warning in found["warnings"])


def test_malformed_lines_are_all_listed_and_are_exit_code_1(domains: tuple[Path, Path]) -> None:
    source, target = domains
    lines = ["bike/0.png bike", *(f"nonsense {number}" for number in range(9)), "mug/0.png mug"]
    (source / "list.txt").write_text("\n".join(lines))
    result = run("--source", source / "list.txt", "--target", target)
    assert result.exit_code == 1
    assert [f"list.txt: line {number}: " in result.stderr for number in range(1, 12)] == [
        False,
        *[True] * 9,
        False,
    ]


def test_a_wrong_call_is_a_user_error_of_one_line(domains: tuple[Path, Path]) -> None:
    result = run("--source", domains[0] / "none", "--target", domains[1])
    assert isinstance(result.exception, UserError)  # the entry point shows it and exits with 2
    assert len(str(result.exception).splitlines()) == 1
    assert run("--source", domains[0]).exit_code == 2


def test_text_shows_counts_gap_and_duplicates(domains: tuple[Path, Path]) -> None:
    source, target = domains
    (target / "[red]same.png").write_bytes((source / "mug" / "3.png").read_bytes())
    result = run("--source", source, "--target", target)
    assert result.exit_code == 0
    for expected in ("mug", "no labels", "Duplicates across the domains: 1 groups of 2", "[red]same.png"):
        assert expected in result.stdout
    assert "Domain gap" in result.stdout


def test_several_processes_print_the_report_of_one(domains: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(domains[0].parent)
    (domains[1] / "bad.jpg").write_bytes(b"text")
    texts = [run("--source", "source", "--target", "target", "--processes", n) for n in (1, 2)]
    assert [text.exit_code for text in texts] == [1, 1]
    lines = [text.stdout.splitlines() for text in texts]
    assert lines[0][:-1] == lines[1][:-1]  # the last one has the time
    assert "unreadable: target/bad.jpg: not an image, or an unsupported format" in lines[1]


def test_threads_of_one_process_are_not_for_several(domains: tuple[Path, Path]) -> None:
    result = run("--source", domains[0], "--target", domains[1], "--processes", 2, "--workers", 4)
    assert isinstance(result.exception, UserError)
    assert str(result.exception) == "--workers is for one process: leave it out with --processes and --engine ray."
