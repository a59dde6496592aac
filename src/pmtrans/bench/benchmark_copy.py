"""A copy of a benchmark on this machine: its domains found, its tasks, and what it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pmtrans.bench.benchmarks import Benchmark, BenchmarkDomain, benchmark_named
from pmtrans.data.reading.classes import plain_name
from pmtrans.data.reading.folders import read_folder
from pmtrans.data.reading.tables import LIST_SUFFIXES, read_list
from pmtrans.errors import DataError, one_line

Protocol = Literal["whole", "split"]
_OWN_LIST = "image_list.txt"  # inside a domain, where folders are no classes (VisDA's test)


@dataclass(frozen=True)
class Task:
    """What to read for a task: specs for ``read_source`` and ``read_target``, with their root and classes.

    ``evaluation`` is the target to measure accuracy on where it is not the one to adapt to: with the
    official splits, the target's test list.
    """

    name: str
    source: Path
    target: Path
    evaluation: Path
    root: Path
    classes: tuple[str, ...] | None
    protocol: Protocol


@dataclass(frozen=True)
class DomainCopy:
    """A domain as found: ``spec`` is its folder or list, None if there is none."""

    domain: BenchmarkDomain
    spec: Path | None
    images: int
    problems: tuple[str, ...]
    has_splits: bool


@dataclass(frozen=True)
class BenchmarkCopy:
    """A copy of a benchmark, complete or not."""

    benchmark: Benchmark
    folder: Path
    domains: tuple[DomainCopy, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What is missing or miscounted, a line each."""
        return tuple(problem for domain in self.domains for problem in domain.problems)


def find_benchmark(name: str, folder: str | Path) -> BenchmarkCopy:
    """Look for a benchmark in a folder and count its images."""
    benchmark = benchmark_named(name)
    home = _home(benchmark, folder)
    return BenchmarkCopy(benchmark, home, tuple(_copy(benchmark, domain, home) for domain in benchmark.domains))


def task(name: str, folder: str | Path, task_name: str, protocol: Protocol = "whole") -> Task:
    """The specs of a task such as ``A2W``. ``split`` is DomainNet's protocol with the official lists.

    Looks where things are, and counts nothing.
    """
    benchmark = benchmark_named(name)
    home = _home(benchmark, folder)
    source, target = benchmark.task_domains(task_name)
    if protocol == "whole":
        specs = [_required(benchmark, domain, home, _spec(domain, home)) for domain in (source, target, target)]
    elif not source.splits:
        raise DataError(f"{benchmark.title} has no official split: use the protocol 'whole'")
    else:
        parts = ((source, "train"), (target, "train"), (target, "test"))
        specs = [_required(benchmark, domain, home, _list(domain, home, part)) for domain, part in parts]
    canonical = f"{source.codes[0]}2{target.codes[0]}"
    return Task(canonical, specs[0], specs[1], specs[2], home, benchmark.class_names, protocol)


def _home(benchmark: Benchmark, folder: str | Path) -> Path:
    """Where the domains are: the folder, or the one inside it that an archive was unpacked into."""
    if not Path(folder).is_dir():
        raise DataError(f"{one_line(folder)}: there is no such folder")
    names = {plain_name(name) for domain in benchmark.domains for name in domain.folders}

    def found(place: Path) -> int:
        return sum(plain_name(entry.name) in names for entry in place.iterdir() if entry.is_dir())

    return max(_places(Path(folder)), key=found)  # the first of equals: VisDA has a class named train


def _required(benchmark: Benchmark, domain: BenchmarkDomain, home: Path, spec: Path | None) -> Path:
    if spec is None:
        raise DataError(
            f"{one_line(home)}: no {domain.name} of {benchmark.title} here; expected {benchmark.layout} "
            f"(see 'pmtrans data {benchmark.name}')"
        )
    return spec


def _copy(benchmark: Benchmark, domain: BenchmarkDomain, home: Path) -> DomainCopy:
    spec = _spec(domain, home)
    if spec is None:
        is_optional = domain.name == "test"  # VisDA's test came later, and the paper does not use it
        missing = f"{domain.name}: not found, expected {domain.images[0]} images"
        return DomainCopy(domain, None, 0, () if is_optional else (missing,), False)
    try:
        rows = read_folder(spec).rows if spec.is_dir() else read_list(spec, labels_required=False)
    except DataError as error:
        return DomainCopy(domain, spec, 0, (f"{domain.name}: {error}",), False)
    problems = []
    if len(rows) not in domain.images:
        expected = " or ".join(str(count) for count in domain.images)
        problems.append(f"{domain.name}: {len(rows)} images, expected {expected} ({one_line(spec)})")
    classes = len({row.label for row in rows})
    if classes != benchmark.classes:
        problems.append(f"{domain.name}: {classes} classes, expected {benchmark.classes} ({one_line(spec)})")
    parts = [_list(domain, home, part) for part in ("train", "test")] if domain.splits else []
    counts = tuple(len(read_list(part, labels_required=True)) for part in parts if part is not None)
    if counts and counts not in domain.splits:
        expected = " or ".join(f"{train} and {test}" for train, test in domain.splits)
        found = " and ".join(map(str, counts))
        problems.append(f"{domain.name}: {found} lines in the split lists, expected {expected}")
    return DomainCopy(domain, spec, len(rows), tuple(problems), len(counts) == 2)


def _spec(domain: BenchmarkDomain, home: Path) -> Path | None:
    """The domain's folder, or else its list."""
    names = {plain_name(name) for name in domain.folders}
    for entry in sorted(home.iterdir()):
        if entry.is_dir() and plain_name(entry.name) in names:
            own_list = entry / _OWN_LIST
            return own_list if domain.name == "test" and own_list.is_file() else entry
    return _list(domain, home, "list") or _list(domain, home, "")


def _list(domain: BenchmarkDomain, home: Path, ending: str) -> Path | None:
    names = {plain_name(name + ending) for name in domain.folders}
    for place in _places(home):
        for entry in sorted(place.iterdir()):
            if entry.suffix.lower() in LIST_SUFFIXES and plain_name(entry.stem) in names and entry.is_file():
                return entry
    return None


def _places(folder: Path) -> list[Path]:
    return [folder, *(entry for entry in sorted(folder.iterdir()) if entry.is_dir())]
