"""The four benchmarks are recognised in their usual layouts, and what a copy lacks is said."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pmtrans.bench import benchmark_copy
from pmtrans.bench.benchmark_copy import find_benchmark, find_task
from pmtrans.bench.benchmarks import (
    BENCHMARKS,
    DOMAINNET,
    OFFICE_31,
    OFFICE_HOME,
    VISDA_2017,
    Benchmark,
    benchmark_named,
)
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.errors import DataError


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def small(benchmark: Benchmark, counts: dict[str, int], classes: int) -> Benchmark:
    """The same benchmark with other counts, so that a copy fits into a test."""
    domains = tuple(dataclasses.replace(d, images=(counts[d.name],)) for d in benchmark.domains)
    return dataclasses.replace(benchmark, domains=domains, classes=classes)


def test_the_counts_are_those_of_the_literature() -> None:
    def total(benchmark: Benchmark, version: int = 0) -> int:
        return sum(domain.images[min(version, len(domain.images) - 1)] for domain in benchmark.domains)

    assert total(OFFICE_31) == 4110
    assert total(OFFICE_HOME) == 15588
    assert total(VISDA_2017) == 152397 + 55388 + 72372
    assert total(DOMAINNET) == 586575
    assert total(DOMAINNET, 1) == 596010
    assert {name: b.classes for name, b in BENCHMARKS.items()} == {
        "office-31": 31,
        "office-home": 65,
        "visda-2017": 12,
        "domainnet": 345,
    }


def test_tasks_are_named_as_in_the_paper() -> None:
    assert OFFICE_31.task_names() == ["A2W", "D2W", "W2D", "A2D", "D2A", "W2A"]
    assert len(OFFICE_HOME.task_names()) == 12
    assert OFFICE_HOME.task_names()[0] == "A2C"
    assert VISDA_2017.task_names()[0] == "train2validation"
    assert len(DOMAINNET.task_names()) == 30
    assert DOMAINNET.task_names()[0] == "clp2inf"


@pytest.mark.parametrize("name", ["A2C", "Ar2Cl", "ar2cl", "Art2Clipart", "A->C", "Ar→Cl"])
def test_a_task_has_several_spellings(name: str) -> None:
    source, target = OFFICE_HOME.task_domains(name)
    assert (source.name, target.name) == ("Art", "Clipart")


@pytest.mark.parametrize("name", ["A2X", "A", "A2A", ""])
def test_what_is_no_task_is_refused(name: str) -> None:
    with pytest.raises(DataError):
        OFFICE_31.task_domains(name)


@pytest.mark.parametrize("name", ["office-31", "Office31", "office_31", "OFFICE 31"])
def test_a_benchmark_has_several_spellings(name: str) -> None:
    assert benchmark_named(name) is OFFICE_31
    assert benchmark_named("visda") is VISDA_2017


def test_an_unknown_benchmark_is_refused_with_the_nearest() -> None:
    with pytest.raises(DataError, match="Did you mean 'office-home'"):
        benchmark_named("ofice-home")


@pytest.mark.parametrize("inner", ["", "images/"])
@pytest.mark.parametrize("outer", ["", "domain_adaptation_images/"])
def test_office_31_in_its_layouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inner: str, outer: str) -> None:
    for domain in ("amazon", "dslr", "webcam"):
        make(tmp_path, *(f"{outer}{domain}/{inner}{name}/1.jpg" for name in ("bike", "mug")))
    monkeypatch.setattr(
        benchmark_copy,
        "benchmark_named",
        lambda _: small(OFFICE_31, {"amazon": 2, "dslr": 2, "webcam": 2}, 2),
    )
    copy = find_benchmark("office-31", tmp_path)
    assert copy.problems == ()
    found = find_task("office-31", tmp_path, "A2W")
    source = read_source(found.source, root=found.root, classes=found.classes)
    target = read_target(found.target, source.classes, root=found.root, classes=found.classes)
    assert source.classes == ("bike", "mug")
    assert target.labelled is not None
    assert all("webcam" in path for path in target.domain.paths)
    assert found.evaluation == found.target


@pytest.mark.parametrize("name", ["Real World", "RealWorld", "Real_World", "real-world"])
def test_office_home_by_every_name_of_its_fourth_domain(tmp_path: Path, name: str) -> None:
    make(tmp_path, "Art/Bed/1.jpg", "Clipart/Bed/1.jpg", "Product/Bed/1.jpg", f"{name}/Bed/1.jpg")
    assert find_task("office-home", tmp_path, "Rw2Pr").source == tmp_path / name
    assert find_task("office-home", tmp_path, "P2R").target == tmp_path / name


def test_what_a_copy_lacks_is_said(tmp_path: Path) -> None:
    make(tmp_path, "amazon/bike/1.jpg", "amazon/mug/1.jpg", "dslr/readme.txt")
    problems = find_benchmark("office-31", tmp_path).problems
    assert problems[0].startswith("amazon: 2 images, expected 2817")
    assert problems[1].startswith("amazon: 2 classes, expected 31")
    assert "no image" in problems[2]
    assert problems[3] == "webcam: not found, expected 795 images"
    with pytest.raises(DataError, match="no webcam of Office-31 here; expected amazon/<class>") as caught:
        find_task("office-31", tmp_path, "A2W")
    assert len(str(caught.value).splitlines()) == 1


def test_visda_train_is_not_mistaken_for_the_class_of_that_name(tmp_path: Path) -> None:
    make(tmp_path, "validation/train/1.jpg", "validation/bus/1.jpg")
    with pytest.raises(DataError, match="no train of VisDA-2017"):
        find_task("visda-2017", tmp_path, "train2validation")


def test_visda_test_is_read_by_its_list(tmp_path: Path) -> None:
    make(tmp_path, *(f"train/{name}/1.png" for name in VISDA_2017.class_names or ()), "validation/bus/1.jpg")
    make(tmp_path, "test/trunk00/a.jpg", "test/trunk01/b.jpg")
    (tmp_path / "test" / "image_list.txt").write_text("trunk00/a.jpg 2\ntrunk01/b.jpg 11\n")
    found = find_task("visda-2017", tmp_path, "train2test")
    source = read_source(found.source, classes=found.classes)
    target = read_target(found.target, source.classes, root=found.root, classes=found.classes)
    assert target.labelled is not None
    assert [source.classes[label] for label in target.labelled.labels] == ["bus", "truck"]


def test_both_protocols_of_domainnet(tmp_path: Path) -> None:
    make(
        tmp_path,
        *(f"{d}/{c}/{i}.jpg" for d in ("clipart", "real") for c in ("bus", "zebra") for i in range(3)),
    )
    whole = find_task("domainnet", tmp_path, "clp2rel")
    assert (whole.source, whole.target) == (tmp_path / "clipart", tmp_path / "real")
    with pytest.raises(DataError, match=r"clipart_train\.txt"):
        find_task("domainnet", tmp_path, "clp2rel", "split")
    for domain in ("clipart", "real"):
        for part, images in (("train", (0, 1)), ("test", (2,))):
            lines = [f"{domain}/{c}/{i}.jpg {n}\n" for n, c in enumerate(("bus", "zebra")) for i in images]
            (tmp_path / "splits").mkdir(exist_ok=True)
            (tmp_path / "splits" / f"{domain}_{part}.txt").write_text("".join(lines))
    split = find_task("domainnet", tmp_path, "clp2rel", "split")
    source = read_source(split.source, root=split.root)
    assert source.classes == ("bus", "zebra")
    assert len(source) == 4
    evaluation = read_target(split.evaluation, source.classes, root=split.root)
    assert [Path(path).name for path in evaluation.domain.paths] == ["2.jpg", "2.jpg"]
    with pytest.raises(DataError, match="no official split"):
        find_task("office-31", tmp_path, "A2W", "split")


def test_a_copy_of_lists_alone_is_found(tmp_path: Path) -> None:
    make(tmp_path, "images/bike/1.jpg", "images/mug/1.jpg")
    for domain in ("amazon", "webcam"):
        (tmp_path / "lists").mkdir(exist_ok=True)
        (tmp_path / "lists" / f"{domain}_list.txt").write_text("/x/images/bike/1.jpg 0\n/x/images/mug/1.jpg 1\n")
    found = find_task("office-31", tmp_path, "A2W")
    assert read_source(found.source, root=found.root).classes == ("bike", "mug")


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        find_benchmark("office-31", tmp_path / "none")
