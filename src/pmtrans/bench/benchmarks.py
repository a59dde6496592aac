"""The four benchmarks of the paper, as data: domains, counts, tasks, and where to get them."""

from __future__ import annotations

from dataclasses import dataclass

from pmtrans.data.reading.classes import normalised_name
from pmtrans.errors import DataError, nearest


@dataclass(frozen=True)
class BenchmarkDomain:
    """One domain of a benchmark.

    ``codes`` are its names in tasks, the first as in the paper's tables; ``folders`` the names its folder or
    list goes by, case and separators aside. ``images`` holds the count of each version in circulation,
    ``splits`` the train and test counts of the official lists of that version.
    """

    name: str
    codes: tuple[str, ...]
    folders: tuple[str, ...]
    images: tuple[int, ...]
    splits: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Benchmark:
    """A benchmark. ``classes`` is their number, ``class_names`` what the ids of its own lists mean, where
    the lists alone do not say it; ``pairs`` are the tasks, by position, when not all pairs are."""

    name: str
    title: str
    classes: int
    domains: tuple[BenchmarkDomain, ...]
    address: str
    layout: str
    class_names: tuple[str, ...] | None = None
    pairs: tuple[tuple[int, int], ...] | None = None

    def tasks(self) -> list[tuple[BenchmarkDomain, BenchmarkDomain]]:
        """Source and target of each task, in the order of the paper's tables."""
        pairs = self.pairs or [
            (source, target)
            for source in range(len(self.domains))
            for target in range(len(self.domains))
            if source != target
        ]
        return [(self.domains[source], self.domains[target]) for source, target in pairs]

    def task_names(self) -> list[str]:
        """The tasks by name, such as ``A2W``."""
        return [f"{source.codes[0]}2{target.codes[0]}" for source, target in self.tasks()]

    def task_domains(self, task: str) -> tuple[BenchmarkDomain, BenchmarkDomain]:
        """Source and target of a task such as ``A2W``, ``Ar2Cl`` or ``amazon2webcam``."""
        source_name, _, target_name = task.replace("->", "2").replace("→", "2").partition("2")
        found = []
        for name in (source_name, target_name):
            known = [domain for domain in self.domains if normalised_name(name) in _names(domain)]
            if not known:
                tasks = self.task_names()
                raise DataError(f"no task {task!r} of {self.title}; it has {', '.join(tasks)}.{nearest(task, tasks)}")
            found.append(known[0])
        if found[0] == found[1]:
            raise DataError(f"task {task!r}: source and target are the same domain, {found[0].name}")
        return found[0], found[1]


def _names(domain: BenchmarkDomain) -> set[str]:
    return {normalised_name(name) for name in (*domain.codes, *domain.folders, domain.name)}


OFFICE_31 = Benchmark(
    name="office-31",
    title="Office-31",
    classes=31,
    domains=(
        BenchmarkDomain("amazon", ("A",), ("amazon",), (2817,)),
        BenchmarkDomain("dslr", ("D",), ("dslr",), (498,)),
        BenchmarkDomain("webcam", ("W",), ("webcam",), (795,)),
    ),
    address="https://faculty.cc.gatech.edu/~judy/domainadapt/",
    layout="amazon/<class>/*.jpg or amazon/images/<class>/*.jpg; likewise dslr, webcam",
    pairs=((0, 2), (1, 2), (2, 1), (0, 1), (1, 0), (2, 0)),
)

OFFICE_HOME = Benchmark(
    name="office-home",
    title="Office-Home",
    classes=65,
    domains=(
        BenchmarkDomain("Art", ("A", "Ar"), ("Art",), (2427,)),
        BenchmarkDomain("Clipart", ("C", "Cl"), ("Clipart",), (4365,)),
        BenchmarkDomain("Product", ("P", "Pr"), ("Product",), (4439,)),
        BenchmarkDomain("Real World", ("R", "Rw", "Re"), ("Real World", "Real"), (4357,)),
    ),
    address="https://www.hemanthdv.org/officeHomeDataset.html",
    layout='Art/<class>/*.jpg; likewise Clipart, Product, and "Real World", RealWorld or Real_World',
)

VISDA_2017 = Benchmark(
    name="visda-2017",
    title="VisDA-2017",
    classes=12,
    domains=(
        BenchmarkDomain("train", ("train",), ("train",), (152397,)),
        BenchmarkDomain("validation", ("validation", "val"), ("validation", "val"), (55388,)),
        BenchmarkDomain("test", ("test",), ("test",), (72372,)),
    ),
    address="https://github.com/VisionLearningGroup/taskcv-2017-public/tree/master/classification",
    layout="train/<class>/*.png; validation/<class>/*.jpg; optional: test/trunk*/*.jpg, test/image_list.txt",
    class_names=(
        *("aeroplane", "bicycle", "bus", "car", "horse", "knife"),
        *("motorcycle", "person", "plant", "skateboard", "train", "truck"),
    ),
    pairs=((0, 1), (0, 2)),
)


def _domainnet(name: str, code: str, *versions: tuple[int, int]) -> BenchmarkDomain:
    """Train and test counts per version, the cleaned one first; results must say which was used."""
    return BenchmarkDomain(name, (code,), (name,), tuple(map(sum, versions)), versions)


DOMAINNET = Benchmark(
    name="domainnet",
    title="DomainNet",
    classes=345,
    domains=(
        _domainnet("clipart", "clp", (33525, 14604), (34019, 14818)),
        _domainnet("infograph", "inf", (36023, 15582), (37087, 16114)),
        _domainnet("painting", "pnt", (50416, 21850), (52867, 22892)),
        _domainnet("quickdraw", "qdr", (120750, 51750)),
        _domainnet("real", "rel", (120906, 52041), (122563, 52764)),
        _domainnet("sketch", "skt", (48212, 20916), (49115, 21271)),
    ),
    address="https://ai.bu.edu/M3SDA/",
    layout="clipart/<class>/*.jpg; likewise the others; for the splits clipart_train.txt, clipart_test.txt",
)

BENCHMARKS = {benchmark.name: benchmark for benchmark in (OFFICE_31, OFFICE_HOME, VISDA_2017, DOMAINNET)}


def benchmark_named(name: str) -> Benchmark:
    """The benchmark of that name; ``Office31``, ``office_31`` and ``office-31`` are one."""
    plain = normalised_name(name)
    for benchmark in BENCHMARKS.values():
        if plain == normalised_name(benchmark.name) or plain == normalised_name(benchmark.name).removesuffix("2017"):
            return benchmark
    raise DataError(f"no benchmark {name!r}; known: {', '.join(BENCHMARKS)}.{nearest(name, BENCHMARKS)}")
