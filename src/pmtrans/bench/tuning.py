"""``pmtrans bench --tune``: the same number of trials for every method, chosen without target labels, then frozen.

A trial is a learning rate and a strength (the setting that ``METHODS`` names for each method), for half of the steps,
on one task, from the one source stage that all share. Each method keeps the trial with the best label-free score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from pmtrans.bench.benchmarks import benchmark_named
from pmtrans.bench.entry import Entry, SharedSettings, parse_entries
from pmtrans.bench.execute import read_result
from pmtrans.bench.jobs import Job, Suite, from_one_source_stage, plan_suite, slug
from pmtrans.bench.rendering import escape_markdown, markdown_rows
from pmtrans.bench.results import Result
from pmtrans.bench.study_records import read_score
from pmtrans.bench.suite_files import read_failures
from pmtrans.config import Config
from pmtrans.errors import ConfigError, one_line
from pmtrans.files import write_text
from pmtrans.methods import METHODS
from pmtrans.run.folder import RunFolder
from pmtrans.texts import TextError, checked, read_yaml

RATE = "train.learning_rate"
RATES, STRENGTHS = (1.0, 0.3), (1.0, 3.0)  # times the given ones: the source stage is done, a ramp is at its beginning
RATES_ALONE = (1.0, 0.3, 3.0, 0.1)  # for a method without a strength: as many trials
TASKS = {"office-31": "A2D"}  # of other benchmarks the first
SOURCE_ONLY = "source_only"


@dataclass(frozen=True)
class Trial:
    """Settings that one run tries for a method; ``name`` is that of the run."""

    name: str
    settings: dict[str, float]


@dataclass(frozen=True)
class Tuning:
    """The runs of all trials, and whose they are."""

    suite: Suite
    trials: dict[str, list[Trial]]
    settings: SharedSettings
    entries: dict[str, Entry]
    task: str


def plan_tuning(
    benchmark: str,
    data: Path,
    out: Path,
    methods: str | None,
    seeds: Sequence[int],
    settings: SharedSettings,
    tasks: Sequence[str] | None = None,
) -> Tuning:
    """Source-only at the full budget, and of every other method (None: all) all trials at half of it."""
    task = TASKS.get(benchmark) or benchmark_named(benchmark).task_names()[0]
    if len(seeds) > 1 or len(tasks or []) > 1:
        raise ConfigError("--tune tries everything on one task with one seed: name one each in --tasks and --seeds.")
    task, seed = tasks[0] if tasks else task, seeds[0]
    entries = parse_entries(methods or ",".join(METHODS))
    tuned = {entry.name: entry for entry in entries if entry.method != SOURCE_ONLY}
    if not tuned:
        raise ConfigError("--tune needs a method besides source_only, which all trials start from.")
    trials, runs = {}, [Entry(SOURCE_ONLY)]
    for name, entry in tuned.items():
        given = settings.configure(entry)
        tried = [(_with(entry, values), values) for values in _grid(given)]
        named = [(settings.canonical(one), values) for one, values in tried]
        trials[name] = [Trial(one.name, values) for one, values in named]
        runs += [one for one, _ in named]
    suite = plan_suite(benchmark, data, out, runs, [seed], settings, [task])
    suite = from_one_source_stage(replace(suite, name=f"{suite.name}-tuning"))
    jobs = tuple(job if job.method == SOURCE_ONLY else _halved(job) for job in suite.jobs)
    common = {**suite.common, "suite": suite.name}
    return Tuning(replace(suite, jobs=jobs, common=common), trials, settings, tuned, task)


def _grid(given: Config) -> list[dict[str, float]]:
    """The settings of each trial, those that were given first."""
    rate, strength = given.train.learning_rate, METHODS[given.method["name"]].strength
    if strength is None:
        return [{RATE: rate * factor} for factor in RATES_ALONE]
    value = given.method[strength]
    return [{RATE: rate * a, f"method.{strength}": value * b} for a in RATES for b in STRENGTHS]


def _with(entry: Entry, settings: Mapping[str, float]) -> Entry:
    """The entry with these settings as switches."""
    return replace(entry, switches=(*entry.switches, *as_switches(settings)))


def as_switches(settings: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(f"{key.removeprefix('method.')}={value:.6g}" for key, value in settings.items())


def _halved(job: Job) -> Job:
    """The same run with half of its steps."""
    train = job.config.train
    half = {"max_steps": max(1, train.max_steps // 2)} if train.max_steps else {"epochs": max(1, train.epochs // 2)}
    config = job.config.model_copy(update={"train": train.model_copy(update=half)})
    return replace(job, config=config, suite=f"{job.suite}-tuning")


@dataclass(frozen=True)
class TuningFiles:
    """Writes ``table.md``, ``tuned.yaml`` and ``tuned/METHOD.yaml``, of the methods whose trials are all done."""

    tuning: Tuning

    def __call__(self, suite: Suite) -> list[Result]:
        """Write all files; returns the results for the display."""
        folders = {job.method: job.folder for job in suite.jobs}
        results = {name: found for name, folder in folders.items() if (found := read_result(folder)) is not None}
        scores = {name: read_score(RunFolder(folders[name])) for name in results}
        chosen = {}
        for method, trials in self.tuning.trials.items():
            known = {trial.name: score for trial in trials if (score := scores.get(trial.name)) is not None}
            if all(trial.name in known for trial in trials):
                chosen[method] = max(trials, key=lambda trial: known[trial.name])
        write_text(suite.out / "table.md", self._table(results, scores, chosen))
        for method, trial in chosen.items():
            write_text(suite.out / "tuned" / f"{slug(method)}.yaml", self._recipe(method, trial))
        if chosen:
            methods = {method: dict(trial.settings) for method, trial in chosen.items()}
            told = {"suite": suite.name.removesuffix("-tuning"), "task": self.tuning.task, "methods": methods}
            write_text(suite.out / "tuned.yaml", yaml.safe_dump(told, sort_keys=False, allow_unicode=True))
        return list(results.values())

    def _recipe(self, method: str, trial: Trial) -> str:
        """All settings of the method with those that were chosen, without domains and seed: for ``--recipe``."""
        config = self.tuning.settings.configure(_with(self.tuning.entries[method], trial.settings))
        tree = config.model_dump(mode="json", exclude={"seed": True, "data": {"source", "target", "root", "classes"}})
        head = f"# Chosen for {method} from {len(self.tuning.trials[method])} trials on {self.tuning.task}, without "
        return f"{head}target labels.\n" + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)

    def _table(
        self, results: Mapping[str, Result], scores: Mapping[str, float | None], chosen: Mapping[str, Trial]
    ) -> str:
        rows = []
        for method, trials in self.tuning.trials.items():
            for trial in trials:
                result, values = results.get(trial.name), list(trial.settings.values())
                score, selected = scores.get(trial.name), None if result is None else result.selected
                strength = METHODS[self.tuning.entries[method].method].strength
                told = f"{strength} {values[1]:.4g}" if strength else ""
                mark = "chosen" if chosen.get(method) is trial else ""
                rows.append(
                    [escape_markdown(method), f"{values[0]:.3g}", told, _percent(score), _percent(selected), mark]
                )
        head = ("Method", "Learning rate", "Strength", "Label-free score", "Accuracy (not looked at)", "")
        lines = [f"### {self.tuning.suite.name}: {self.tuning.task}\n", *markdown_rows(head, rows), ""]
        open_runs = sum(trial.name not in results for trials in self.tuning.trials.values() for trial in trials)
        lines += [f"{open_runs} trials are not done.\n"] if open_runs else []
        if any(scores[name] is None for name in results):
            lines.append("Without a held-out part of the source (data.holdout) there is no label-free score.\n")
        failures = read_failures(self.tuning.suite.out)
        lines += [f"- failed: {escape_markdown(one.method)}: {escape_markdown(one.reason)}" for one in failures]
        return "\n".join(lines) + "\n"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def tuned_entries(methods: str | None, tuned: Mapping[str, Sequence[str]]) -> list[Entry]:
    """The methods of a comparison, all of them tuned (None: all that are), and the source stage they start from."""
    entries = parse_entries(methods or ",".join(tuned))
    for entry in entries:
        if entry.method != SOURCE_ONLY and entry.name not in tuned:
            raise ConfigError(f"Method {entry.name!r} is not in --tuned, which has: {', '.join(tuned)}. Tune it too.")
    return [Entry(SOURCE_ONLY), *(entry for entry in entries if entry.method != SOURCE_ONLY)]


def read_tuned(path: Path) -> dict[str, tuple[str, ...]]:
    """The switches of each method in a ``tuned.yaml``."""
    try:
        tree: Any = read_yaml(path)
        methods = checked(tree["methods"], dict[str, dict[str, float]])
    except (OSError, TextError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"--tuned {one_line(path)!r} cannot be read: {one_line(error, 150)}") from None
    return {method: as_switches(values) for method, values in methods.items()}
