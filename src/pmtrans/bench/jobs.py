"""Which runs a suite has: tasks x entries x seeds, each a configuration and a folder ``runs/TASK/METHOD/SEED``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pmtrans.bench.ablations import ABLATIONS, Ablation
from pmtrans.bench.baselines import baseline_key
from pmtrans.bench.benchmark_copy import Protocol, task
from pmtrans.bench.benchmarks import benchmark_named
from pmtrans.bench.entry import Entry, Settings
from pmtrans.bench.paper import table, table_names
from pmtrans.config import Config
from pmtrans.errors import ConfigError, RunError, UserError, one_line
from pmtrans.files import write_text
from pmtrans.run.provenance import MAY_CHANGE, flatten
from pmtrans.settings import validate


@dataclass(frozen=True)
class Job:
    """One run. ``after`` is the run whose baseline this one will share: it had better be finished first."""

    suite: str
    task: str
    method: str  # the entry's name
    seed: int
    config: Config
    folder: Path
    evaluation: str | None = None  # what accuracy is measured on, where it is not what is adapted to
    after: Path | None = None

    @property
    def title(self) -> str:
        return f"{self.task} {self.method} seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """Everything a suite will do; ``ablations`` maps each ablation's variants to the entries they come to."""

    suite: str
    out: Path
    tasks: tuple[str, ...]  # all of the benchmark, in the order of tables
    methods: tuple[str, ...]
    jobs: tuple[Job, ...]
    ablations: dict[str, dict[str, str]]
    common: dict[str, Any]  # settings that hold for all runs, method and domains aside
    ablation: str | None = None


def make_plan(
    suite: str,
    data: Path,
    out: Path,
    entries: Sequence[Entry],
    seeds: Sequence[int],
    settings: Settings,
    tasks: Sequence[str] | None = None,
    ablation: Ablation | None = None,
    protocol: Protocol = "whole",
) -> Plan:
    """Find the data, configure every run, and refuse what was begun in ``out`` with other settings."""
    benchmark = benchmark_named(suite)
    settings.check(entries)
    named = list(dict.fromkeys(settings.canonical(entry) for entry in entries))
    out, data = out.resolve(), data.resolve()
    known = table(benchmark.name).runs if benchmark.name in table_names() else tuple(benchmark.task_names())
    domains = {found.name: found for found in (task(suite, data, name, protocol) for name in tasks or known)}
    title = benchmark.name if protocol == "whole" else f"{benchmark.name}-{protocol}"
    jobs: list[Job] = []
    first: dict[str, Path] = {}  # the first run to have a baseline of its own trains it for all
    for seed in seeds:
        for name, found in domains.items():
            for entry in sorted(named, key=lambda entry: entry.method != "source_only"):
                classes = out / "classes.txt" if found.classes else None
                place: dict[str, Any] = {
                    "seed": seed, "data.source": str(found.source), "data.target": str(found.target),
                    "data.root": str(found.root), "data.classes": str(classes) if classes else None,
                }  # fmt: skip
                config = settings.configure(entry, place)
                folder = out / "runs" / name / slug(entry.name) / str(seed)
                evaluation = str(found.evaluation) if found.evaluation != found.target else None
                key = baseline_key(config)
                after = first.setdefault(key, folder) if key else folder
                jobs.append(
                    Job(title, name, entry.name, seed, config, folder, evaluation, after if after != folder else None)
                )
    variants = {
        one.name: {label: settings.canonical(entry).name for label, entry in one.variants.items()}
        for one in ABLATIONS.values()
    }
    methods = tuple(entry.name for entry in named)
    order = tuple(dict.fromkeys((*known, *benchmark.task_names())))
    common = {"suite": title, **_common(settings.configure(Entry("source_only")))}
    return Plan(title, out, order, methods, tuple(jobs), variants, common, ablation.name if ablation else None)


def slug(name: str) -> str:
    """A name as a folder: ``pmtrans:beta=fixed(1,1)`` is ``pmtrans-beta=fixed-1-1``."""
    return re.sub(r"[^\w.=+]+", "-", name).strip("-.")


def open_suite(plan: Plan) -> None:
    """Make ``out`` ready; what was run there with other settings must not get into one table with this."""
    for job in plan.jobs:
        path = job.folder / "config.yaml"
        if path.is_file() and (changed := _differences(path, job.config)):
            raise RunError(
                f"Run {one_line(job.folder)!r} was made with other settings ({changed}): choose another --out."
            )
    path = plan.out / "suite.yaml"
    if plan.out.exists() and not plan.out.is_dir():
        raise RunError(f"--out {one_line(plan.out)!r} is a file, not a folder.")
    if not path.is_file():
        if plan.out.is_dir() and any(plan.out.iterdir()):
            raise RunError(f"Output folder {one_line(plan.out)!r} is in use and holds no suite: choose another --out.")
        write_text(path, yaml.safe_dump(plan.common, sort_keys=False, allow_unicode=True))
    before = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    if changed := _told(before, {key: value for key, value in plan.common.items() if key in before}):
        raise RunError(f"Suite {one_line(plan.out)!r} was begun with other settings ({changed}): choose another --out.")
    classes = benchmark_named(plan.suite.removesuffix("-split")).class_names
    if classes:
        write_text(plan.out / "classes.txt", "".join(f"{name}\n" for name in classes))


def _common(config: Config) -> dict[str, Any]:
    differ = {*MAY_CHANGE, "data.source", "data.target", "data.root", "data.classes"}
    shared = flatten(config.model_dump(mode="json", exclude={"method", "seed"}))
    return {key: value for key, value in shared.items() if key not in differ}


def _differences(path: Path, config: Config) -> str:
    try:
        before = validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UserError, yaml.YAMLError):
        return f"{path.name} cannot be read"
    return _told(*(flatten(one.model_dump(mode="json")) for one in (before, config)))


def _told(before: dict[str, Any], now: dict[str, Any]) -> str:
    changed = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key) and key not in MAY_CHANGE]
    return "; ".join(f"{key}: {one_line(before.get(key), 60)} -> {one_line(now.get(key), 60)}" for key in changed[:5])


def parse_seeds(text: str) -> list[int]:
    """``0,1,2`` as numbers."""
    try:
        seeds = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise ConfigError(f"--seeds {one_line(text)!r} are not whole numbers from 0 on, parted by commas: --seeds 0,1.")
    return list(dict.fromkeys(seeds))
