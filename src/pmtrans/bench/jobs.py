"""Which runs a suite has: tasks x entries x seeds, each a configuration and a folder ``runs/TASK/METHOD/SEED``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from pmtrans.bench.ablations import ABLATIONS, Ablation
from pmtrans.bench.benchmark_copy import BenchmarkCopy, Protocol, find_benchmark, find_task
from pmtrans.bench.benchmarks import benchmark_named
from pmtrans.bench.entry import Entry, SharedSettings
from pmtrans.bench.paper import table, table_names
from pmtrans.bench.source_stages import source_key
from pmtrans.config import Config
from pmtrans.errors import ConfigError, RunError, UserError, one_line
from pmtrans.files import write_text
from pmtrans.run.folder import RunFolder
from pmtrans.run.provenance import MAY_CHANGE, flatten
from pmtrans.settings import validate
from pmtrans.texts import read_yaml

INCOMPLETE = "this copy of the benchmark is incomplete, so the numbers cannot be compared with the paper's"


@dataclass(frozen=True)
class Job:
    """One run. ``after`` is the run whose baseline this one shares, and which should finish first."""

    suite: str
    task: str
    method: str  # the entry's name
    seed: int
    config: Config
    folder: Path
    evaluation: str | None = None  # the data to measure accuracy on, if not the target itself
    after: Path | None = None
    start_from: Path | None = None  # the run whose source stage is taken whatever the settings of this one are

    @property
    def title(self) -> str:
        return f"{self.task} {self.method} seed {self.seed}"


@dataclass(frozen=True)
class Suite:
    """All runs of a suite. ``ablations`` maps each ablation's variants to the names of their entries."""

    name: str
    out: Path
    tasks: tuple[str, ...]  # all tasks of the benchmark, in the order of its table
    methods: tuple[str, ...]
    jobs: tuple[Job, ...]
    ablations: dict[str, dict[str, str]]
    common: dict[str, Any]  # settings that all runs share, without method and domains
    ablation: str | None = None
    class_names: tuple[str, ...] | None = None  # written to ``classes.txt``, where lists have ids only
    problems: tuple[str, ...] = ()  # of the copy's domains that the runs use: images that are missing
    reference: str = "source_only"  # the method that the others are compared with


def plan_suite(
    benchmark_name: str,
    data: Path,
    out: Path,
    entries: Sequence[Entry],
    seeds: Sequence[int],
    settings: SharedSettings,
    tasks: Sequence[str] | None = None,
    ablation: Ablation | None = None,
    protocol: Protocol = "whole",
) -> Suite:
    """Find the data and configure every run."""
    benchmark = benchmark_named(benchmark_name)
    settings.check(entries)
    named = list(dict.fromkeys(settings.canonical(entry) for entry in entries))
    out, data = out.resolve(), data.resolve()
    known = table(benchmark.name).runs if benchmark.name in table_names() else tuple(benchmark.task_names())
    domains = {
        found.name: found for found in (find_task(benchmark_name, data, name, protocol) for name in tasks or known)
    }
    title = benchmark.name if protocol == "whole" else f"{benchmark.name}-{protocol}"
    jobs: list[Job] = []
    first: dict[str, Path] = {}  # source stage -> the first run with it, which trains it for all
    for seed in seeds:
        for name, found in domains.items():
            for entry in sorted(named, key=lambda entry: entry.method != "source_only"):
                classes = out / "classes.txt" if found.classes else None
                run_settings: dict[str, Any] = {
                    "seed": seed, "data.source": str(found.source), "data.target": str(found.target),
                    "data.root": str(found.root), "data.classes": str(classes) if classes else None,
                }  # fmt: skip
                config = settings.configure(entry, run_settings)
                folder = out / "runs" / name / slug(entry.name) / str(seed)
                evaluation = str(found.evaluation) if found.evaluation != found.target else None
                after = first_with_stage(first, config, folder)
                jobs.append(Job(title, name, entry.name, seed, config, folder, evaluation, after))
    variants = {
        one.name: {label: settings.canonical(entry).name for label, entry in one.variants.items()}
        for one in ABLATIONS.values()
    }
    methods = tuple(entry.name for entry in named)
    order = tuple(dict.fromkeys((*known, *benchmark.task_names())))
    common = {"suite": title, **_common(settings.configure(Entry("source_only")))}
    problems = _problems(find_benchmark(benchmark_name, data), domains)
    wanted = ablation.name if ablation else None
    return Suite(title, out, order, methods, tuple(jobs), variants, common, wanted, benchmark.class_names, problems)


def from_one_source_stage(suite: Suite) -> Suite:
    """All runs of a task and seed start from its source-only run, whatever their own learning rates are."""
    stages = {(job.task, job.seed): job.folder for job in suite.jobs if job.method == "source_only"}
    jobs = []
    for job in suite.jobs:
        stage = stages[job.task, job.seed]
        jobs.append(job if job.folder == stage else replace(job, after=stage, start_from=stage))
    return replace(suite, jobs=tuple(jobs))


def first_with_stage(first: dict[str, Path], config: Config, folder: Path) -> Path | None:
    """The run that trains the source stage of ``config``, None if ``folder`` does; ``first`` is kept up to date."""
    key = source_key(config)
    trains = first.setdefault(key, folder) if key else folder
    return trains if trains != folder else None


def _problems(copy: BenchmarkCopy, tasks: Iterable[str]) -> tuple[str, ...]:
    """What is missing in the domains of these tasks."""
    used = {domain.name for task in tasks for domain in copy.benchmark.task_domains(task)}
    return tuple(problem for found in copy.domains if found.domain.name in used for problem in found.problems)


def slug(name: str) -> str:
    """A name as a folder: ``pmtrans:beta=fixed(1,1)`` is ``pmtrans-beta=fixed-1-1``."""
    return re.sub(r"[^\w.=+]+", "-", name).strip("-.")


def open_suite(suite: Suite) -> None:
    """Prepare ``out``; runs with other settings there are refused, as they must not share a table."""
    for job in suite.jobs:
        path = RunFolder(job.folder).config
        if path.is_file() and (changed := _differences(path, job.config)):
            raise RunError(
                f"Run {one_line(job.folder)!r} was started with other settings ({changed}): choose another --out."
            )
    path = suite.out / "suite.yaml"
    if suite.out.exists() and not suite.out.is_dir():
        raise RunError(f"--out {one_line(suite.out)!r} is a file, not a folder.")
    if not path.is_file():
        if suite.out.is_dir() and any(suite.out.iterdir()):
            raise RunError(f"Output folder {one_line(suite.out)!r} is not empty and not a suite: choose another --out.")
        write_text(path, yaml.safe_dump(suite.common, sort_keys=False, allow_unicode=True))
    before = read_yaml(path) or {}
    if changed := _describe_changes(before, {key: value for key, value in suite.common.items() if key in before}):
        raise RunError(
            f"Suite {one_line(suite.out)!r} was started with other settings ({changed}): choose another --out."
        )
    if suite.class_names:
        write_text(suite.out / "classes.txt", "".join(f"{name}\n" for name in suite.class_names))


def _common(config: Config) -> dict[str, Any]:
    per_run = {*MAY_CHANGE, "data.source", "data.target", "data.root", "data.classes"}
    shared = flatten(config.model_dump(mode="json", exclude={"method", "seed"}))
    return {key: value for key, value in shared.items() if key not in per_run}


def _differences(path: Path, config: Config) -> str:
    try:
        before = validate(read_yaml(path))
    except (OSError, UserError):
        return f"{path.name} cannot be read"
    return _describe_changes(*(flatten(one.model_dump(mode="json")) for one in (before, config)))


def _describe_changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    changed = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key) and key not in MAY_CHANGE]
    return "; ".join(f"{key}: {one_line(before.get(key), 60)} -> {one_line(now.get(key), 60)}" for key in changed[:5])


def parse_seeds(text: str) -> list[int]:
    """``0,1,2`` as numbers."""
    try:
        seeds = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise ConfigError(
            f"--seeds {one_line(text)!r} must be comma-separated whole numbers from 0 on, such as --seeds 0,1."
        )
    return list(dict.fromkeys(seeds))
