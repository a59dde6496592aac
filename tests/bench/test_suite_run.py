"""Suites that are really run: the synthetic Office-Home, killed, broken, in parallel, on Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pmtrans.bench.engine import LocalProcesses
from pmtrans.cli import app
from recounted import adapted_model, recount
from tiny_office_home import COMMAND, write_office_home
from tiny_suite import holder, kill_when, results, run, tiny_plan, weights


@pytest.fixture(scope="module")
def office_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_office_home(tmp_path_factory.mktemp("data") / "OfficeHome")


def table(out: Path) -> list[str]:
    lines = (out / "table.md").read_text().splitlines()
    return [line for line in lines if "time (min)" not in line and "memory (MB)" not in line]


@pytest.fixture(scope="module")
def undisturbed(office_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that nothing happened to."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    assert run(tiny_plan(office_home, out)) == 0
    return out


def test_all_of_office_home_goes_through_suite_tables_and_figures(office_home: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["bench", "office-home", "--data", str(office_home), "--out", str(out), "--methods",
                 "source_only,pmtrans", "--quiet", *COMMAND, "train.max_steps=4", "train.evaluate_every=2"]  # fmt: skip
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    rows = results(out)
    assert [(row["suite"], row["method"], row["seed"]) for row in rows[:: len(rows) - 1]] == [
        ("office-home", "source_only", "0"),
        ("office-home", "pmtrans", "0"),
    ]
    assert [row["task"] for row in rows[:12]] == [f"{s}2{t}" for s in "ACPR" for t in "ACPR" if s != t]
    assert len(rows) == 24
    domains = {name[0]: office_home / name for name in ("Art", "Clipart", "Product", "Real World")}
    for row in rows:
        run_folder = out / "runs" / row["task"] / row["method"] / "0"
        accuracy, per_class_mean = recount(adapted_model(run_folder), domains[row["task"][-1]])
        assert (float(row["selected"]), float(row["per_class_mean"])) == pytest.approx((accuracy, per_class_mean))
        assert float(row["oracle"]) >= max(float(row["selected"]), float(row["last"]))
    text = (out / "table.md").read_text()
    assert text == first.stdout
    assert "| pmtrans | ViT-Base | paper | 81.2 |" in text
    for folder in (out / "runs").glob("*/pmtrans/0"):  # one source-only training for both
        other = folder.parents[1] / "source_only" / "0"
        trained = other / "adapted" if (other / "adapted").is_dir() else other / "model"  # it may ship its probe
        pairs = {"finished.json": other / "finished.json", "model/model.safetensors": trained / "model.safetensors"}
        for name, original in pairs.items():
            assert (folder / "baseline" / name).read_bytes() == original.read_bytes()

    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*/*/*") if path.name != ".lock"}
    figures = CliRunner().invoke(app, [*arguments, "--tasks", "C2P", "--figures"])
    assert figures.exit_code == 0, figures.output
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert results(out) == rows
    drawn = {path.name for path in (out / "figures").iterdir() if path.stat().st_size > 1000}
    names = ("tsne", "losses", "accuracy", "attention", "mixing")
    assert drawn == {f"{name}-C2P.{kind}" for name in names for kind in ("png", "svg")}


def test_a_suite_killed_three_times_ends_with_the_table_of_one_that_was_not(
    office_home: Path, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    moments = [
        "runs/R2P/source_only/0/checkpoints/step-*",
        "runs/R2P/source_only/0/result.json",
        "runs/R2P/pmtrans/0/checkpoints/step-*4",
    ]
    arguments = ["office-home", "--data", str(office_home), "--out", str(out), "--tasks", "R2P", *COMMAND]
    program = Path(__file__).with_name("killed_suite.py")
    done = subprocess.run(
        [sys.executable, str(program), str(out), *moments, "--", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("ended")] == [*["ended -9"] * 3, "ended 0"], (
        done.stderr
    )
    assert results(out) == results(undisturbed)
    assert table(out) == table(undisturbed)
    assert weights(out) == weights(undisturbed)


def test_a_run_that_fails_is_told_in_one_line_and_tried_again(tmp_path: Path) -> None:
    data, out = write_office_home(tmp_path / "data"), tmp_path / "out"
    image = data / "Product" / "Bed" / "0.png"
    whole = image.read_bytes()
    image.write_bytes(whole[:50])
    arguments = ["bench", "office-home", "--data", str(data), "--out", str(out), "--methods", "source_only",
                 "--tasks", "R2P,R2C", *COMMAND, "train.max_steps=2"]  # fmt: skip
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 1
    assert [row["task"] for row in results(out)] == ["R2C"]  # the suite went on
    (reason,) = (out / "runs" / "R2P" / "source_only" / "0" / "failure.txt").read_text().splitlines()
    assert "1 images cannot be read" in reason
    assert f"- failed: R2P, source_only, seed 0: {reason}" in first.stdout

    image.write_bytes(whole)
    done = out / "runs" / "R2C" / "source_only" / "0" / "result.json"
    before = done.stat().st_mtime_ns
    second = CliRunner().invoke(app, arguments)
    assert second.exit_code == 0, second.output
    assert "failed" not in second.stdout
    assert done.stat().st_mtime_ns == before
    assert [row["task"] for row in results(out)] == ["R2C", "R2P"]


def test_processes_give_the_results_of_one_even_if_one_is_killed(
    office_home: Path, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    plan = tiny_plan(office_home, out)
    killer = kill_when(lambda: holder(out))
    assert run(plan, LocalProcesses(2, threads=1)) == 0
    assert len(killer.victims) == 1, "a process was killed while it trained"
    assert results(out) == results(undisturbed)
    assert weights(out) == weights(undisturbed)


def test_domainnet_by_its_splits_reports_the_accuracy_on_the_test_list(tmp_path: Path) -> None:
    """The chosen model is measured again by ``evaluate``; of the other checkpoints nothing is known there."""
    data, out = tmp_path / "data", tmp_path / "out"
    write_office_home(data)
    for old, new in (("Art", "clipart"), ("Product", "sketch")):
        (data / old).rename(data / new)
        images = sorted((data / new).glob("*/*.png"))
        for part, chosen in (("train", images[::2]), ("test", images[1::2])):
            names = ("Alarm_Clock", "Bed", "Candles")
            lines = [f"{path.relative_to(data)} {names.index(path.parent.name)}\n" for path in chosen]
            (data / f"{new}_{part}.txt").write_text("".join(lines))
    done = CliRunner().invoke(app, ["bench", "domainnet", "--data", str(data), "--out", str(out), "--protocol", "split",
                                    "--methods", "source_only", "--tasks", "clp2skt", *COMMAND])  # fmt: skip
    assert done.exit_code == 0, done.output
    (row,) = results(out)
    assert (row["suite"], row["last"], row["oracle"]) == ("domainnet-split", "", "")
    run_folder = out / "runs" / "clp2skt" / "source_only" / "0"
    measured = CliRunner().invoke(
        app, ["evaluate", str(run_folder), "--data", str(data / "sketch_test.txt"), "--root", str(data), "--json"]
    )
    assert json.loads(measured.stdout)["images"] == 9
    assert float(row["selected"]) == json.loads(measured.stdout)["accuracy"]
