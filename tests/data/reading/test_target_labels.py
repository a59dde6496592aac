"""Labels that a user gives for some target images: where they may come from, and what is refused in one line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pmtrans.data.domain import Domain
from pmtrans.data.reading.read import read_target
from pmtrans.data.reading.target_labels import TargetLabels, own_names, read_target_labels
from pmtrans.errors import DataError
from tiny_run import write_images

CLASSES = ("cat", "dog")


@pytest.fixture
def target(tmp_path: Path) -> Domain:
    write_images(tmp_path / "labelled", CLASSES, 5)
    (tmp_path / "target").mkdir()
    for path in sorted((tmp_path / "labelled").rglob("*.png")):
        shutil.copy(path, tmp_path / "target" / f"{path.parent.name[0]}{path.name}")
    return read_target(tmp_path / "target", CLASSES).domain


def read(spec: Path, target: Domain, **changes: Any) -> TargetLabels:
    return read_target_labels(spec, target, CLASSES, **{"kept_share": 0.0, "seed": 0, **changes})


def as_names(labels: TargetLabels) -> dict[str, str]:
    trained = labels.trained
    return {Path(path).name: trained.classes[label] for path, label in zip(trained.paths, trained.labels, strict=True)}


def table(path: Path, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("path,label\n" + "\n".join(rows) + "\n")
    return path


def copies(folder: Path, target: Domain) -> Path:
    for name, image in (("cat", "c0.png"), ("dog", "d3.png")):
        (folder / name).mkdir(parents=True)
        shutil.copy(target.origin / image, folder / name / image)
    return folder


@pytest.mark.parametrize(
    "write",
    [
        lambda home, target: table(home / "labels.csv", "c0.png,cat", "d3.png,Dog", "c1.png,"),
        lambda home, target: table(
            home / "labels.csv", f"{target.origin / 'c0.png'},cat", f"{target.origin}/d3.png,dog"
        ),
        lambda home, target: table(home / "labels.csv", "target/c0.png,cat", "target/d3.png,dog"),
        lambda home, target: table(target.origin / "labels.csv", "c0.png,cat", "d3.png,dog", "c0.png,cat"),
        lambda home, target: copies(home / "copies", target),
    ],
    ids=["relative to the target", "absolute", "relative to the table", "beside the images", "class folders"],
)
def test_paths_are_found_however_they_are_written(
    write: Callable[[Path, Domain], Path], target: Domain, tmp_path: Path
) -> None:
    labels = read(write(tmp_path, target), target)
    assert as_names(labels) == {"c0.png": "cat", "d3.png": "dog"}
    assert set(labels.trained.paths) <= set(target.paths)
    assert len(labels.kept) == 0


def test_a_list_and_ids_with_a_classes_file(target: Domain, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("c0.png 0\nd3.png 1\n")
    assert as_names(read(tmp_path / "labels.txt", target, classes=CLASSES)) == {"c0.png": "cat", "d3.png": "dog"}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["c0.png,cat", "x9.png,dog"], r"line 3: x9\.png is not an image of the target"),
        (["c0.png,cat", "d3.png,dgo"], r"line 3: 'dgo' is not a class\. Did you mean 'dog'\?"),
        (["c0.png,cat", "c0.png,dog"], r"line 3: 'c0\.png' is 'dog' here, 'cat' on line 2"),
        (["c0.png,cat", "target/c0.png,dog"], r"line 3: 'dog' for target/c0\.png, before it was 'cat'"),
        (["c0.png,", "d3.png,"], "no label in it"),
    ],
)
def test_what_cannot_be_meant_is_one_line(rows: list[str], said: str, target: Domain, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said) as raised:
        read(table(tmp_path / "labels.csv", *rows), target)
    assert "\n" not in str(raised.value)


def test_folders_that_do_not_fit_are_one_line(target: Domain, tmp_path: Path) -> None:
    write_images(tmp_path / "strangers" / "in", CLASSES, 1)
    with pytest.raises(DataError, match=r"0\.png is not an image of the target .* and 1 more"):
        read(tmp_path / "strangers", target)
    (copies(tmp_path / "copies", target) / "dog").rename(tmp_path / "copies" / "owl")
    with pytest.raises(DataError, match=r"'owl' is not a class \(the source has cat, dog\)"):
        read(tmp_path / "copies", target)
    with pytest.raises(DataError, match=r"--target-labels .*nowhere: there is no such folder or file"):
        read(tmp_path / "nowhere", target)


def many(tmp_path: Path, count: int) -> tuple[Domain, Path]:
    """A target of 60 images, the first of which are labelled; the files need not exist to be divided."""
    paths = tuple(str(tmp_path / "many" / f"{number:03d}.png") for number in range(60))
    target = Domain(tmp_path / "many", paths)
    rows = [f"{path},{CLASSES[number % 2]}" for number, path in enumerate(paths[:count])]
    return target, table(tmp_path / "labels.csv", *rows)


def test_a_part_is_kept_and_stays_kept_when_labels_are_added(tmp_path: Path) -> None:
    target, file = many(tmp_path, 40)
    first = read(file, target, kept_share=0.2)
    assert 5 <= len(first.kept) <= 16
    assert sorted(first.kept.paths + first.trained.paths) == list(target.paths[:40])
    target, file = many(tmp_path, 60)
    later = read(file, target, kept_share=0.2)
    assert set(first.kept.paths) <= set(later.kept.paths)
    assert not set(first.trained.paths) & set(later.kept.paths)
    assert set(read(file, target, kept_share=0.2, seed=1).kept.paths) != set(later.kept.paths)


def test_few_labels_all_train(tmp_path: Path) -> None:
    target, file = many(tmp_path, 19)
    assert len(read(file, target, kept_share=0.5).kept) == 0
    target, file = many(tmp_path, 20)
    assert len(read(file, target, kept_share=0.01).kept) == 5
    assert len(read(file, target, kept_share=0.0).kept) == 0


def test_only_images_that_were_drawn_at_random_measure(tmp_path: Path) -> None:
    target, file = many(tmp_path, 40)
    rows = [f"{path},{'drawn' if number < 20 else 'chosen'},1" for number, path in enumerate(target.paths[:40])]
    (tmp_path / "design.csv").write_text("path,why,weight\n" + "\n".join(rows) + "\n")
    labels = read(file, target, kept_share=0.4)
    assert len(labels.kept) >= 5
    assert set(labels.kept.paths) <= set(target.paths[:20])
    (tmp_path / "design.csv").write_text("nothing,of\nthe,kind\n")
    with pytest.raises(DataError, match="not the file that label-these wrote"):
        read(file, target, kept_share=0.4)


def test_images_that_are_left_out_of_the_target_have_no_label(target: Domain, tmp_path: Path) -> None:
    labels = read(table(tmp_path / "labels.csv", "c0.png,cat", "d3.png,dog"), target)
    left = Domain(target.origin, tuple(path for path in target.paths if not path.endswith("c0.png")))
    assert list(own_names(labels.within(left).trained)) == ["target/d3.png"]
    with pytest.raises(DataError, match="none of its images can be read"):
        labels.within(Domain(target.origin, target.paths[1:1]))


def test_of_an_open_target_an_image_may_be_of_no_class(target: Domain, tmp_path: Path) -> None:
    file = table(tmp_path / "labels.csv", "c0.png,cat", "d3.png,unknown", "c1.png,unknown")
    labels = read(file, target, is_open=True)
    assert as_names(labels) == {"c0.png": "cat"}
    assert list(own_names(labels.unknown)) == ["target/c1.png", "target/d3.png"]
    left = Domain(target.origin, tuple(path for path in target.paths if not path.endswith("d3.png")))
    assert list(own_names(labels.within(left).unknown)) == ["target/c1.png"]
    with pytest.raises(DataError, match=r"'unknown' is a label for data\.target_classes=open only"):
        read(file, target)
    with pytest.raises(DataError, match="no label but 'unknown'"):
        read(table(tmp_path / "labels.csv", "d3.png,unknown"), target, is_open=True)
    with pytest.raises(DataError, match=r"'c0\.png' is 'unknown' here, 'cat' on line 2"):
        read(table(tmp_path / "labels.csv", "c0.png,cat", "c0.png,unknown"), target, is_open=True)
