"""``pmtrans data``: where to get a benchmark, how to lay it out, and whether a copy is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from pmtrans.bench.benchmarks import BENCHMARKS
from pmtrans.cli.data import data
from pmtrans.errors import DataError


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(data)
    return CliRunner().invoke(app, list(arguments))


def test_without_a_name_all_benchmarks_are_listed() -> None:
    assert [line.split()[0] for line in run().stdout.splitlines()] == list(BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_name_says_where_to_get_it_and_how_to_lay_it_out(name: str) -> None:
    result = run(name)
    assert result.exit_code == 0
    benchmark = BENCHMARKS[name]
    for expected in (benchmark.address, benchmark.layout, benchmark.task_names()[0]):
        assert expected in result.stdout


def test_an_incomplete_copy_is_exit_code_1(tmp_path: Path) -> None:
    (tmp_path / "amazon" / "bike").mkdir(parents=True)
    (tmp_path / "amazon" / "bike" / "1.jpg").touch()
    result = run("office-31", str(tmp_path))
    assert result.exit_code == 1
    assert "incomplete: webcam: not found, expected 795 images" in result.stdout


def test_a_complete_copy_is_exit_code_0(tmp_path: Path) -> None:
    counts = {"amazon": 2817, "dslr": 498, "webcam": 795}
    for domain, count in counts.items():
        for number in range(count):
            folder = tmp_path / domain / f"class_{number % 31:02d}"
            if number < 31:
                folder.mkdir(parents=True)
            (folder / f"{number}.jpg").touch()
    result = run("office-31", str(tmp_path))
    assert result.exit_code == 0
    assert "complete" in result.stdout


def test_an_unknown_name_is_a_user_error() -> None:
    assert isinstance(run("imagenet").exception, DataError)
