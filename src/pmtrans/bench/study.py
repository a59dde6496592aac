"""A study: a YAML file of variants x tasks x seeds, and the runs that it asks for.

    recipe: small/office-31-short       # optional: a packaged recipe, or a file
    settings: {train.max_steps: 160}    # of all runs
    variants:                           # what each changes; the first is the reference, or `reference: NAME`
      paper: {method.preset: paper}
      fixed: {method.preset: paper, method.beta: fixed}
    tasks:
      shop2phone: {source: photos/shop, target: photos/phone}
    seeds: [0, 1, 2]

A variant is what would be added to the command ``pmtrans train``. Everything is checked before the first run begins; a
mistake is told in one line with the file and the key.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from pmtrans.bench.benchmark_copy import find_task
from pmtrans.bench.benchmarks import benchmark_named
from pmtrans.bench.jobs import Job, Suite, first_with_stage, slug
from pmtrans.config import Config, find_study, read_recipe
from pmtrans.config.load import checked, for_method
from pmtrans.config.sections import SettingsSection
from pmtrans.data.domains import read_data
from pmtrans.errors import ConfigError, UserError, nearest, one_line
from pmtrans.progress import Reporter
from pmtrans.settings import validate
from pmtrans.texts import TextError, read_yaml

Settings = dict[str, Any]  # by dotted key
_PER_RUN = {"seed": "seeds", "data.source": "tasks", "data.target": "tasks"}
_PATHS = ("backbone.weights", "data.root", "data.source_root", "data.target_root", "data.classes")


class TaskFolders(SettingsSection):
    """A task of one's own: folders, list files or tables."""

    source: str
    target: str


class StudyFile(SettingsSection):
    """The keys of the YAML file; a task is checked by ``TaskFolders``, a setting by the configuration."""

    recipe: str | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    weights: str | None = None
    variants: dict[str, dict[str, Any] | None] = Field(default_factory=dict)
    reference: str | None = None
    benchmark: str | None = None
    data: str | None = None
    tasks: Any = None
    seeds: list[int] = Field([0])


@dataclass(frozen=True)
class TaskData:
    """The settings of a task's domains; ``class_names`` where its lists have ids only."""

    settings: Settings
    class_names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Study:
    """What a file asks for. ``variants`` maps a name to a whole tree of settings without domains and seed."""

    file: Path
    variants: dict[str, dict[str, Any]]
    reference: str
    tasks: dict[str, TaskData]
    seeds: tuple[int, ...]


def read_study(file: Path, data: Path | None = None, weights: str | None = None) -> Study:
    """Read and check a file, or a packaged study by name; ``data`` and ``weights`` replace those of the file."""
    path = find_study(file)
    with _named(file.name):
        given = _replaced(checked(StudyFile, _read(path)), data, weights)
        if not given.variants:
            raise ConfigError("Key 'variants' must map at least one name to the settings that it changes.")
        seeds = tuple(dict.fromkeys(given.seeds))
        if not seeds or min(seeds) < 0:
            raise ConfigError(f"Key 'seeds' cannot be {given.seeds}: list whole numbers from 0 on, such as [0, 1, 2].")
        reference = given.reference if given.reference is not None else next(iter(given.variants))
        if reference not in given.variants:
            near = nearest(reference, given.variants)
            raise ConfigError(f"Key 'reference' names {one_line(reference)!r}, which is no variant.{near}")
        study = Study(path, _variants(given, path.parent), reference, _tasks(given, path.parent), seeds)
        _refuse_equal_folders("variants", study.variants)
        _refuse_equal_folders("tasks", study.tasks)
        _check_domains(study)
    return study


def plan_study(study: Study, out: Path) -> Suite:
    """The runs of a study, as a suite whose methods are the variants."""
    out = out.resolve()
    jobs: list[Job] = []
    first: dict[str, Path] = {}  # source stage -> the first run with it, which trains it for all
    for seed in study.seeds:
        for task, domains in study.tasks.items():
            classes = {"data.classes": str(out / "classes.txt")} if domains.class_names else {}
            configs = {
                name: validate(_with(tree, {**domains.settings, **classes, "seed": seed}))
                for name, tree in study.variants.items()
            }
            for name, config in sorted(configs.items(), key=lambda item: item[1].method["name"] != "source_only"):
                folder = out / "runs" / slug(task) / slug(name) / str(seed)
                after = first_with_stage(first, config, folder)
                jobs.append(Job(study.file.stem, task, name, seed, config, folder, after=after))
    suite = Suite(study.file.stem, out, tuple(study.tasks), tuple(study.variants), tuple(jobs), {}, {"suite": "study"})
    return replace(suite, class_names=next(iter(study.tasks.values())).class_names)


def _replaced(given: StudyFile, data: Path | None, weights: str | None) -> StudyFile:
    """The file with what the command line says instead; paths there start from the working folder."""
    if data is not None:
        given = given.model_copy(update={"data": str(data.resolve())})
    if weights is not None:
        path = Path(weights)
        given = given.model_copy(update={"weights": str(path.resolve()) if path.is_file() else weights})
    return given


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = read_yaml(path)
    except (OSError, TextError) as error:
        raise ConfigError(f"it cannot be read: {one_line(error, 150)}") from None
    if not isinstance(tree, dict):
        raise ConfigError("it is not a mapping of keys: variants, tasks, seeds, ...")
    return tree


def _variants(given: StudyFile, home: Path) -> dict[str, dict[str, Any]]:
    """The recipe, the settings of all runs and those of each variant, later ones first."""
    base: dict[str, Any] = {}
    if given.recipe is not None:
        own = home / given.recipe
        base = read_recipe(own if own.is_file() else Path(given.recipe))
    shared = {**_dotted(given.settings), **({"backbone.weights": given.weights} if given.weights else {})}
    with _named("settings"):
        base = _with(base, _located(shared, home))
    trees = {}
    for name, settings in given.variants.items():
        with _named(f"variants.{one_line(name, 60)}"):
            dotted = _dotted(settings or {})
            of_method = for_method(base, dotted["method.name"]) if "method.name" in dotted else base
            tree = _with(of_method, _located(dotted, home))
            config = validate(tree)
            _refuse_missing_weights(config)
            trees[name] = tree
    return trees


def _tasks(given: StudyFile, home: Path) -> dict[str, TaskData]:
    """Own folders by name, or names of a benchmark's tasks; relative paths start from ``data`` or the file's folder."""
    root = (home / given.data).resolve() if given.data is not None else home
    if isinstance(given.tasks, list) or (given.tasks is None and given.benchmark is not None):
        if given.benchmark is None:
            raise ConfigError("Key 'tasks' is a list of names: say of which 'benchmark', or give source and target.")
        with _named("benchmark"):
            benchmark = benchmark_named(given.benchmark)
        with _named("tasks"):
            found = [find_task(benchmark.name, root, str(name)) for name in given.tasks or benchmark.task_names()]
        return {task.name: TaskData(_domains(task.source, task.target, task.root), task.classes) for task in found}
    if given.benchmark is not None:
        raise ConfigError("Key 'benchmark' goes with a list of its tasks: leave it out, or list them under 'tasks'.")
    if not isinstance(given.tasks, dict) or not given.tasks:
        raise ConfigError("Key 'tasks' must map names to {source: PATH, target: PATH}, or list tasks of a 'benchmark'.")
    tasks = {}
    for name, value in given.tasks.items():
        if not isinstance(value, dict) or not {"source", "target"} <= value.keys():
            raise ConfigError(f"Key 'tasks.{one_line(name, 60)}' must be {{source: PATH, target: PATH}}.")
        folders = checked(TaskFolders, value, f"tasks.{one_line(name, 60)}.")
        tasks[str(name)] = TaskData(_domains(root / folders.source, root / folders.target))
    return tasks


def _domains(source: Path, target: Path, root: Path | None = None) -> Settings:
    return {"data.source": str(source), "data.target": str(target), **({"data.root": str(root)} if root else {})}


def _check_domains(study: Study) -> None:
    """The domains of every task can be read (those of a benchmark were found already)."""
    tree = study.variants[study.reference]
    for name, task in study.tasks.items():
        if task.class_names is None:
            with _named(f"tasks.{one_line(name, 60)}"):
                read_data(validate(_with(tree, task.settings)), Reporter(quiet=True), decode=False)


def _refuse_equal_folders(key: str, names: Iterable[str]) -> None:
    """Names become folders, without characters that not every disk takes."""
    seen: dict[str, str] = {}
    for name in names:
        folder = slug(name)
        if not folder:
            raise ConfigError(f"Key {key!r}: {one_line(name)!r} needs a letter or a digit in it.")
        if folder in seen:
            both = f"{one_line(seen[folder])!r} and {one_line(name)!r}"
            raise ConfigError(f"Key {key!r}: {both} would be the same folder: rename one.")
        seen[folder] = name


def _refuse_missing_weights(config: Config) -> None:
    weights = config.backbone.weights
    if weights not in ("none", "timm") and not weights.startswith("hf-hub:") and not Path(weights).is_file():
        raise ConfigError(f"Key 'backbone.weights': there is no file {one_line(weights)!r}.")


def _dotted(settings: Mapping[str, Any]) -> Settings:
    """``{train: {clip: 1}}`` and ``{train.clip: 1}`` are the same; what differs between runs is refused."""
    flat: Settings = {}
    for key, value in settings.items():
        if isinstance(value, dict) and "." not in str(key):
            flat |= {f"{key}.{inner}": one for inner, one in value.items()}
        else:
            flat[str(key)] = value
    for key in flat:
        if key in _PER_RUN:
            raise ConfigError(f"Key {key!r} differs between the runs of a study: use '{_PER_RUN[key]}'.")
    return flat


def _located(settings: Settings, home: Path) -> Settings:
    """Paths that exist beside the file as absolute ones: workers of a cluster have another working folder."""
    return {
        key: str((home / value).resolve()) if key in _PATHS and value and (home / str(value)).exists() else value
        for key, value in settings.items()
    }


def _with(tree: dict[str, Any], settings: Settings) -> dict[str, Any]:
    """A copy of the tree with these settings in it."""
    tree = copy.deepcopy(tree)
    for key, value in settings.items():
        *sections, last = key.split(".")
        place = tree
        for section in sections:
            if place.get(section) is None:
                place[section] = {}
            place = place[section]
            if not isinstance(place, dict):
                raise ConfigError(f"Key {one_line(key)!r}: {section!r} is a value, not a section.")
        place[last] = value
    return tree


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Mistakes are told with the place they were made at."""
    try:
        yield
    except UserError as error:
        raise type(error)(f"{where}: {error}") from None
