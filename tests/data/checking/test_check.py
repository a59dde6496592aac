"""The check lists every bad file and nothing else, and touches nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from hostile_images import Hostile, make_hostile_folder, noise
from pmtrans.data.checking.check import THUMBNAIL_FEATURES, check_domains
from pmtrans.data.checking.readable import UnreadableFile, fast_check, keep_readable, keep_readable_labelled
from pmtrans.data.reading.read import Target, read_source, read_target
from pmtrans.errors import DataError


@pytest.fixture
def hostile(tmp_path: Path) -> tuple[Path, Hostile]:
    folder = tmp_path / "hostile"
    return folder, make_hostile_folder(folder)


def clean(folder: Path, first_seed: int, per_class: int = 12, classes: tuple[str, ...] = ("bike", "mug")) -> Path:
    seeds = iter(range(first_seed, first_seed + 1000))
    for name in classes:
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            noise(next(seeds), (48, 40)).save(folder / name / f"{number:02d}.png")
    return folder


def snapshot(folder: Path) -> list[tuple[str, int, int]]:
    return sorted(
        (path, os.lstat(path).st_mtime_ns, os.lstat(path).st_size)
        for top, _, names in os.walk(folder)
        for path in (os.path.join(top, name) for name in names)
    )


def test_both_checks_list_every_bad_file_and_nothing_else(hostile: tuple[Path, Hostile], tmp_path: Path) -> None:
    folder, made = hostile
    before = snapshot(folder)
    source = read_source(folder)
    target = read_target(clean(tmp_path / "clean", 5000), source.classes)
    assert set(source.paths) == {*made.good, *made.bad}
    report = check_domains(source, target)
    assert {bad.path for bad in report.source.unreadable} == set(made.bad)
    assert report.target.unreadable == ()
    assert not report.all_readable
    bad = fast_check(source, target).bad
    assert [one.path for one in bad] == sorted(made.bad)
    assert {one.path: one.reason for one in bad} == {one.path: one.reason for one in report.source.unreadable}
    assert snapshot(folder) == before


def test_skipping_keeps_the_order_of_the_others(hostile: tuple[Path, Hostile]) -> None:
    folder, made = hostile
    source = read_source(folder)
    bad = fast_check(source, Target(source.images, None, ())).bad
    kept = keep_readable_labelled(source, bad)
    assert list(kept.paths) == sorted(made.good)
    assert kept.classes == source.classes
    for path, label in zip(kept.paths, kept.labels, strict=True):
        assert Path(path).relative_to(folder).parts[0] == kept.classes[label]
    assert keep_readable(source.images, bad).paths == kept.paths


def test_a_domain_without_one_readable_image_is_refused(tmp_path: Path) -> None:
    source = read_source(clean(tmp_path / "s", 0, per_class=1))
    with pytest.raises(DataError, match="none of its 2 images can be read"):
        keep_readable_labelled(source, [UnreadableFile(path, "broken") for path in source.paths])


def test_clean_domains_are_counted_measured_and_compared(tmp_path: Path) -> None:
    source = read_source(clean(tmp_path / "s", 0))
    target = read_target(clean(tmp_path / "t", 2000, classes=("bike", "sofa")), source.classes)
    report = check_domains(source, target)
    assert report.all_readable
    assert report.source.classes == {"bike": 12, "mug": 12}
    assert report.target.classes == {"bike": 12, "mug": 0, "sofa": 12}
    assert (report.source.images, report.target.images) == (24, 24)
    assert report.source.statistics is not None
    assert report.source.statistics.width.median == 48
    assert report.domain_gap is not None
    assert 0 <= report.domain_gap <= 2
    assert report.domain_gap_features == THUMBNAIL_FEATURES
    assert report.warnings == target.warnings


def test_the_gap_is_measured_on_given_features(tmp_path: Path) -> None:
    source = read_source(clean(tmp_path / "s", 0))
    target = read_target(clean(tmp_path / "t", 2000), source.classes)

    def folder_as_feature(paths: list[str]) -> np.ndarray:
        return np.array([[float("/t/" in path), 1.0] for path in paths])

    report = check_domains(source, target, features=folder_as_feature, features_name="the folder")
    assert report.domain_gap == pytest.approx(2)
    assert report.domain_gap_features == "the folder"


def test_an_unlabelled_target_that_seems_to_miss_a_class_is_warned_of(tmp_path: Path) -> None:
    source = read_source(clean(tmp_path / "s", 0, per_class=20))
    clean(tmp_path / "t", 2000, classes=("one",), per_class=20)
    target = read_target(tmp_path / "t" / "one", source.classes)

    def all_like_bikes(paths: list[str]) -> np.ndarray:
        return np.array([[0.1, 1.0] if "/mug/" in path else [1.0, 0.1] for path in paths])

    report = check_domains(source, target, features=all_like_bikes)
    assert report.warnings == (
        "target seems to have no images of 1 source classes, by its features: mug "
        "(data.target_classes=partial trains without them)",
    )


def test_leaks_small_classes_and_double_labels_are_warned_of(tmp_path: Path) -> None:
    folder = clean(tmp_path / "s", 0, per_class=9)
    shutil.copy(folder / "bike" / "00.png", folder / "mug" / "copy.png")
    other = clean(tmp_path / "t", 2000)
    shutil.copy(folder / "bike" / "01.png", other / "bike" / "leak.png")
    source = read_source(folder)
    report = check_domains(source, read_target(other, source.classes))
    assert report.equal.across == ((str(folder / "bike" / "01.png"), str(other / "bike" / "leak.png")),)
    assert report.duplicates.within_source == ((str(folder / "bike" / "00.png"), str(folder / "mug" / "copy.png")),)
    small, leak, labels = report.warnings
    assert "fewer than 10 images of 1 classes: bike (9)" in small
    assert leak.startswith("leak: 1 target images are in the source too")
    assert "leak.png" in leak
    assert "1 images have more than one label" in labels
    assert "bike and mug" in labels


def test_a_small_domain_has_no_gap(tmp_path: Path) -> None:
    source = read_source(clean(tmp_path / "s", 0, per_class=2))
    report = check_domains(source, read_target(clean(tmp_path / "t", 2000, per_class=2), source.classes))
    assert report.domain_gap is None


def test_the_number_of_workers_changes_nothing(tmp_path: Path) -> None:
    source = read_source(clean(tmp_path / "s", 0))
    target = read_target(clean(tmp_path / "t", 2000), source.classes)
    one, four = (check_domains(source, target, workers=workers).as_json() for workers in (1, 4))
    for report in (one, four):
        del report["seconds"], report["images_per_second"]
    assert one == four
