"""Tuning that is really run, and what a comparison makes of it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from pmtrans.bench.display import Display
from pmtrans.bench.engine import LocalProcesses
from pmtrans.bench.entry import SharedSettings
from pmtrans.bench.jobs import open_suite
from pmtrans.bench.suite import run_suite
from pmtrans.bench.tuning import Tuning, TuningFiles, plan_tuning
from pmtrans.cli import app
from pmtrans.errors import ConfigError
from pmtrans.methods import METHODS
from pmtrans.run.folder import RunFolder
from pmtrans.settings import load_config
from pmtrans.texts import read_json, read_yaml
from tiny_office_home import COMMAND, FLAGS, SETTINGS, write_office_home

SHORT = ("train.max_steps=4", "train.evaluate_every=1")


@pytest.fixture(scope="module")
def office_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_office_home(tmp_path_factory.mktemp("data") / "OfficeHome")


def plan(data: Path, out: Path, methods: str | None = "bnm,symnets", *tasks: str) -> Tuning:
    settings = SharedSettings(None, (*SETTINGS, *SHORT), FLAGS)
    return plan_tuning("office-home", data, out, methods, [0], settings, tasks or None)


def bench(data: Path, out: Path, *flags: str) -> Any:
    arguments = ["bench", "office-home", "--data", str(data), "--out", str(out), "--quiet", *flags]
    return CliRunner().invoke(app, [*arguments, *COMMAND, *SHORT])


@pytest.fixture(scope="module")
def tuned(office_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tuned") / "out"
    done = bench(office_home, out, "--tune", "--methods", "bnm,symnets", "--tasks", "R2P")
    assert done.exit_code == 0, done.output
    return out


def test_every_method_has_as_many_trials_and_its_own_settings_among_them(office_home: Path, tmp_path: Path) -> None:
    tuning = plan(office_home, tmp_path / "out", methods=None)
    assert set(tuning.trials) == set(METHODS) - {"source_only"}
    assert {len(trials) for trials in tuning.trials.values()} == {4}
    assert len({trial.name for trials in tuning.trials.values() for trial in trials}) == 4 * len(tuning.trials)
    for name, trials in tuning.trials.items():
        assert trials[0].name == name, "the first trial is what was given"
    assert tuning.task == "A2C"
    assert tuning.trials["dann"][3].settings == pytest.approx({"train.learning_rate": 9e-4, "method.reversal": 3.0})


def test_trials_have_half_of_the_steps_and_start_from_one_source_stage(office_home: Path, tmp_path: Path) -> None:
    tuning = plan(office_home, tmp_path / "out")
    source, *trials = tuning.suite.jobs
    assert (source.method, source.config.train.max_steps, source.after) == ("source_only", 4, None)
    assert {job.config.train.max_steps for job in trials} == {2}
    assert {job.start_from for job in trials} == {job.after for job in trials} == {source.folder}


def test_the_best_label_free_score_is_chosen_and_written_as_recipes(tuned: Path) -> None:
    suite = read_yaml(tuned / "tuned.yaml")
    assert (suite["suite"], suite["task"], list(suite["methods"])) == ("office-home", "R2P", ["bnm", "symnets"])
    chosen = suite["methods"]["bnm"]
    scores: dict[tuple[float, float], float] = {}
    for folder in (tuned / "runs" / "R2P").glob("bnm*/0"):
        summary, config = read_json(folder / "summary.json"), load_config(folder / "config.yaml")
        gain = summary["evaluations"]["adapted"]["score.arbitration"]
        tried = config.train.learning_rate, config.method["weight"]
        scores[tried] = summary["estimates"]["source_only"]["accuracy"] + gain
        assert (folder / "baseline" / "origin.json").is_file(), "taken over, not trained again"
    assert len(scores) == 4
    assert len(set(scores.values())) > 1
    best = scores[round(chosen["train.learning_rate"], 9), chosen["method.weight"]]
    assert best == max(scores.values())
    recipe = load_config(tuned / "tuned" / "bnm.yaml")
    assert recipe.train.learning_rate == pytest.approx(chosen["train.learning_rate"])
    assert recipe.method["weight"] == pytest.approx(chosen["method.weight"])
    assert recipe.train.max_steps == 4  # the whole budget
    assert (tuned / "table.md").read_text().count("chosen") == 2


def test_a_tuning_that_was_interrupted_is_resumed_and_two_processes_choose_the_same(
    office_home: Path, tuned: Path, tmp_path: Path
) -> None:
    tuning = plan(office_home, tmp_path / "out", "bnm,symnets", "R2P")
    open_suite(tuning.suite)
    files, display = TuningFiles(tuning), Display(quiet=True)
    assert run_suite(tuning.suite, LocalProcesses(2), display, files) == 0
    assert (tmp_path / "out" / "tuned.yaml").read_text() == (tuned / "tuned.yaml").read_text()
    lost = next((tmp_path / "out" / "runs" / "R2P").glob("symnets*")) / "0"
    (lost / "result.json").unlink()
    (tmp_path / "out" / "tuned.yaml").unlink()
    files(tuning.suite)
    assert list(read_yaml(tmp_path / "out" / "tuned.yaml")["methods"]) == ["bnm"], "not from three of four trials"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out/runs/*/*/0/result.json")}
    again = bench(office_home, tmp_path / "out", "--tune", "--methods", "bnm,symnets", "--tasks", "R2P")
    assert again.exit_code == 0, again.output
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (tmp_path / "out" / "tuned.yaml").read_text() == (tuned / "tuned.yaml").read_text()


def test_a_comparison_has_the_tuned_settings_and_one_source_stage(
    office_home: Path, tuned: Path, tmp_path: Path
) -> None:
    chosen = {"methods": {"bnm": {"train.learning_rate": 1e-3, "method.weight": 0.5}}}
    (tmp_path / "tuned.yaml").write_text(yaml.safe_dump(chosen))
    out = tmp_path / "out"
    done = bench(office_home, out, "--tuned", str(tmp_path / "tuned.yaml"), "--tasks", "A2C")
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader((out / "results.csv").open()))
    assert [row["method"] for row in rows] == ["source_only", "bnm"]
    run = RunFolder(out / "runs" / "A2C" / "bnm" / "0")
    config = load_config(run.config)
    assert (config.train.learning_rate, config.method["weight"], config.train.max_steps) == (1e-3, 0.5, 4)
    source = out / "runs" / "A2C" / "source_only" / "0"
    trained = source / "adapted" if (source / "adapted").is_dir() else source / "model"
    name = "model.safetensors"
    assert (run.baseline.model / name).read_bytes() == (trained / name).read_bytes()
    refused = bench(office_home, out, "--tuned", str(tmp_path / "tuned.yaml"), "--methods", "dann")
    assert isinstance(refused.exception, ConfigError)
    assert "'dann' is not in --tuned" in str(refused.exception)


def test_two_tasks_and_no_method_are_refused(office_home: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one task with one seed"):
        plan(office_home, tmp_path / "out", "bnm", "A2C", "R2P")
    with pytest.raises(ConfigError, match="besides source_only"):
        plan(office_home, tmp_path / "out", "source_only")
