"""A copy of a benchmark on this machine: its domains, its tasks, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pmtrans.bench.benchmarks import Benchmark, BenchmarkDomain, benchmark_named
from pmtrans.data.reading.classes import normalised_name
from pmtrans.data.reading.folders import read_folder
from pmtrans.data.reading.tables import LIST_SUFFIXES, read_list
from pmtrans.errors import DataError, one_line

Protocol = Literal["whole", "split"]
_OWN_LIST = "image_list.txt"  # inside a domain whose folders are not classes (VisDA's test)


@dataclass(frozen=True)
class BenchmarkTask:
    """The data of a task: arguments for ``read_source`` and ``read_target``.

    ``evaluation`` is what accuracy is measured on: the target itself or, with the official splits, its test list.
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
    """A domain of the copy: ``spec`` is its folder or list, None if not found."""

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
        """Missing domains and wrong counts, one line each."""
        return tuple(problem for domain in self.domains for problem in domain.problems)


def find_benchmark(name: str, folder: str | Path) -> BenchmarkCopy:
    """Look for a benchmark in a folder and count its images."""
    benchmark = benchmark_named(name)
    root = _root(benchmark, folder)
    return BenchmarkCopy(benchmark, root, tuple(_copy(benchmark, domain, root) for domain in benchmark.domains))


def find_task(name: str, folder: str | Path, task_name: str, protocol: Protocol = "whole") -> BenchmarkTask:
    """The specs of a task such as ``A2W``. ``split`` is DomainNet's protocol with the official lists.

    Finds the domains without counting images.
    """
    benchmark = benchmark_named(name)
    root = _root(benchmark, folder)
    source, target = benchmark.task_domains(task_name)
    if protocol == "whole":
        specs = [_required(benchmark, domain, root, _spec(domain, root)) for domain in (source, target, target)]
    elif not source.splits:
        raise DataError(f"{benchmark.title} has no official split: use the protocol 'whole'")
    else:
        parts = ((source, "train"), (target, "train"), (target, "test"))
        specs = [_required(benchmark, domain, root, _list(domain, root, part)) for domain, part in parts]
    canonical = f"{source.codes[0]}2{target.codes[0]}"
    return BenchmarkTask(canonical, specs[0], specs[1], specs[2], root, benchmark.class_names, protocol)


def _root(benchmark: Benchmark, folder: str | Path) -> Path:
    """The folder of the domains: the given one, or a folder in it that an archive was unpacked to."""
    if not Path(folder).is_dir():
        raise DataError(f"{one_line(folder)}: there is no such folder")
    names = {normalised_name(name) for domain in benchmark.domains for name in domain.folders}

    def found(place: Path) -> int:
        return sum(normalised_name(entry.name) in names for entry in place.iterdir() if entry.is_dir())

    return max(_folder_and_children(Path(folder)), key=found)  # the first of equals: VisDA has a class named train


def _required(benchmark: Benchmark, domain: BenchmarkDomain, root: Path, spec: Path | None) -> Path:
    if spec is None:
        raise DataError(
            f"{one_line(root)}: no {domain.name} of {benchmark.title} here; expected {benchmark.layout} "
            f"(see 'pmtrans data {benchmark.name}')"
        )
    return spec


def _copy(benchmark: Benchmark, domain: BenchmarkDomain, root: Path) -> DomainCopy:
    spec = _spec(domain, root)
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
    parts = [_list(domain, root, part) for part in ("train", "test")] if domain.splits else []
    counts = tuple(len(read_list(part, labels_required=True)) for part in parts if part is not None)
    if counts and counts not in domain.splits:
        expected = " or ".join(f"{train} and {test}" for train, test in domain.splits)
        found = " and ".join(map(str, counts))
        problems.append(f"{domain.name}: {found} lines in the split lists, expected {expected}")
    return DomainCopy(domain, spec, len(rows), tuple(problems), len(counts) == 2)


def _spec(domain: BenchmarkDomain, root: Path) -> Path | None:
    """The domain's folder, or else its list."""
    names = {normalised_name(name) for name in domain.folders}
    for entry in sorted(root.iterdir()):
        if entry.is_dir() and normalised_name(entry.name) in names:
            own_list = entry / _OWN_LIST
            return own_list if domain.name == "test" and own_list.is_file() else entry
    return _list(domain, root, "list") or _list(domain, root, "")


def _list(domain: BenchmarkDomain, root: Path, ending: str) -> Path | None:
    names = {normalised_name(name + ending) for name in domain.folders}
    for place in _folder_and_children(root):
        for entry in sorted(place.iterdir()):
            if entry.suffix.lower() in LIST_SUFFIXES and normalised_name(entry.stem) in names and entry.is_file():
                return entry
    return None


def _folder_and_children(folder: Path) -> list[Path]:
    return [folder, *(entry for entry in sorted(folder.iterdir()) if entry.is_dir())]
