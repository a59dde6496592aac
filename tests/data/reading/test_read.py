"""Point at images, get a domain: whatever they are in, the same images and classes come out."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest

from pmtrans.cli.early import require_settings
from pmtrans.data.domain import Domain, LabelledDomain
from pmtrans.data.reading.listing import MalformedLines
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.data.reading.target_labels import read_target_labels
from pmtrans.errors import DataError

CLASSES = ("bike", "lamp", "mug")


def make(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


@pytest.fixture
def office(tmp_path: Path) -> Path:
    """Class folders with files in an order unlike that of their making."""
    return make(tmp_path / "office", "mug/b.jpg", "mug/a.jpg", "bike/c.png", "lamp/d.webp", "lamp/e.gif")


def contents(domain: LabelledDomain) -> list[tuple[str, str]]:
    return [(Path(path).name, domain.classes[label]) for path, label in zip(domain.paths, domain.labels, strict=True)]


EXPECTED = [("c.png", "bike"), ("d.webp", "lamp"), ("e.gif", "lamp"), ("a.jpg", "mug"), ("b.jpg", "mug")]
IDS = {"bike": 0, "lamp": 1, "mug": 2}
LINES = [
    ("mug/b.jpg", "mug"),
    ("bike/c.png", "bike"),
    ("lamp/e.gif", "lamp"),
    ("lamp/d.webp", "lamp"),
    ("mug/a.jpg", "mug"),
]


def test_class_folders(office: Path) -> None:
    domain = read_source(office)
    assert domain.classes == CLASSES
    assert domain.labels == (0, 1, 1, 2, 2)
    assert contents(domain) == EXPECTED
    assert domain.origin == office


def test_lists_and_tables_give_the_same_domain_as_the_folders(office: Path, tmp_path: Path) -> None:
    expected = read_source(office)
    (tmp_path / "ids.txt").write_text("".join(f"/old/office/{path} {IDS[name]}\n" for path, name in LINES))
    (tmp_path / "names.txt").write_text("".join(f"{path} {name}\n" for path, name in LINES))
    with open(tmp_path / "table.csv", "w", newline="") as file:
        csv.writer(file).writerows([("file", "class"), *LINES])
    for name in ("ids.txt", "names.txt", "table.csv"):
        found = read_source(tmp_path / name, root=office)
        assert dataclasses.replace(found, images=Domain(office, found.paths)) == expected, name


def test_a_classes_file_fixes_names_and_order(office: Path, tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("mug\nbike\nlamp\nsofa\n")
    domain = read_source(office, classes=tmp_path / "classes.txt")
    assert domain.classes == ("mug", "bike", "lamp", "sofa")
    assert contents(domain) == EXPECTED


def test_a_classes_file_names_folders_that_are_ids(tmp_path: Path) -> None:
    folder = make(tmp_path / "ids", "0/a.jpg", "1/b.jpg", "2/c.jpg")
    domain = read_source(folder, classes=CLASSES)
    assert contents(domain) == [("a.jpg", "bike"), ("b.jpg", "lamp"), ("c.jpg", "mug")]


def test_a_label_beyond_the_classes_file_is_reported_with_its_line(office: Path) -> None:
    (office / "list.txt").write_text("mug/a.jpg 0\nmug/b.jpg 3\n")
    with pytest.raises(MalformedLines, match="line 2: '3' is not in the classes file"):
        read_source(office / "list.txt", classes=CLASSES)
    with pytest.raises(MalformedLines, match=r"line 2: '3' is not an id .*0 to 2"):
        read_target(office / "list.txt", CLASSES, classes=CLASSES)


def test_ids_in_one_folder_stay_ids_and_are_sorted_by_number(tmp_path: Path) -> None:
    make(tmp_path, *(f"flat/{number}.jpg" for number in range(12)))
    (tmp_path / "list.txt").write_text("".join(f"flat/{number}.jpg {number}\n" for number in range(12)))
    assert read_source(tmp_path / "list.txt").classes == tuple(str(number) for number in range(12))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.jpg", "b.jpg"], "one folder per class"),
        (["mug/a.jpg"], "only one class, 'mug'"),
        (["mug/a.jpg", "bike/b.jpg", "stray.jpg"], r"1 images are outside the class folders.*stray\.jpg"),
        (["readme.txt"], "no image"),
        (["train/mug/a.jpg", "test/bike/b.jpg"], "contain class folders: give one"),
        (["amazon/mug/a.jpg", "amazon/bike/b.jpg", "dslr/mug/a.jpg", "dslr/bike/b.jpg"], "amazon, dslr"),
    ],
)
def test_folders_that_cannot_be_a_source_are_refused_in_one_line(
    tmp_path: Path, names: list[str], message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_source(make(tmp_path / "source", *names))
    assert len(str(caught.value).splitlines()) == 1


def test_what_is_not_there_or_of_no_known_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder or file"):
        read_source(tmp_path / "none")
    (tmp_path / "data.xlsx").touch()
    with pytest.raises(DataError, match=r"not a folder, list or table.*\.csv"):
        read_target(tmp_path / "data.xlsx", CLASSES)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(DataError, match="no image in this file"):
        read_source(tmp_path / "empty.txt")


def test_an_unlabelled_target_of_any_depth(tmp_path: Path) -> None:
    target = read_target(make(tmp_path / "flat", "b.jpg", "a.jpg"), CLASSES)
    assert [Path(path).name for path in target.domain.paths] == ["a.jpg", "b.jpg"]
    assert target.labelled is None
    assert not target.warnings
    nested = read_target(make(tmp_path / "nested", "2024/may/b.jpg", "2023/a.jpg"), CLASSES)
    assert len(nested.domain) == 2
    assert nested.labelled is None
    assert "unlabelled" in nested.warnings[0]
    assert "2023, 2024" in nested.warnings[0]


def test_the_training_side_of_a_target_has_no_labels(office: Path) -> None:
    target = read_target(office, CLASSES)
    assert type(target.domain) is Domain
    assert not hasattr(target.domain, "labels")
    assert {field.name for field in dataclasses.fields(target.domain)} == {"origin", "paths"}


def test_target_labels_follow_the_order_of_the_source(office: Path) -> None:
    target = read_target(office, ("mug", "lamp", "bike"))
    assert target.labelled is not None
    assert target.labelled.classes == ("mug", "lamp", "bike")
    assert contents(target.labelled) == EXPECTED
    assert sorted(target.labelled.paths) == sorted(target.domain.paths)
    assert not target.warnings


def test_other_spellings_are_matched_with_a_warning(tmp_path: Path) -> None:
    target = read_target(make(tmp_path / "t", "Alarm-Clock/a.jpg", "mug/b.jpg"), ("alarm_clock", "mug"))
    assert target.labelled is not None
    assert contents(target.labelled) == [("a.jpg", "alarm_clock"), ("b.jpg", "mug")]
    assert len(target.warnings) == 1
    assert "'Alarm-Clock' is 'alarm_clock'" in target.warnings[0]


def test_classes_that_one_domain_lacks_are_warnings(tmp_path: Path) -> None:
    folder = make(tmp_path / "t", "sofa/a.jpg", "sofa/b.jpg", "mug/c.jpg", "d.jpg")
    target = read_target(folder, CLASSES)
    assert len(target.domain) == 4
    assert target.labelled is not None
    assert contents(target.labelled) == [("c.jpg", "mug")]
    assert target.unknown_classes == (("sofa", 2),)
    unknown, missing, unlabelled = target.warnings
    assert "2 images of 1 classes unknown to the source (sofa)" in unknown
    assert "no images of 2 source classes: bike, lamp" in missing
    assert "1 images without a label" in unlabelled


def test_images_that_are_only_evaluated_are_not_said_to_be_trained_on_and_a_slip_is_noticed(tmp_path: Path) -> None:
    folder = make(tmp_path / "t", "lmap/a.jpg", "sofa/b.jpg", "mug/c.jpg", "lamp/d.jpg", "bike/e.jpg")
    unknown, slip = read_target(folder, CLASSES, trained_on=False).warnings
    assert unknown.endswith("2 images of 2 classes unknown to the source (lmap, sofa): left out of evaluation")
    assert slip == "is it a misspelt class? 'lmap' for 'lamp'"
    assert "used for training" in read_target(folder, CLASSES).warnings[0]


def test_ids_against_names_are_refused_with_the_difference_unless_a_file_resolves_it(tmp_path: Path) -> None:
    make(tmp_path, "flat/a.jpg", "flat/b.jpg")
    (tmp_path / "list.txt").write_text("flat/a.jpg 2\nflat/b.jpg 0\n")
    with pytest.raises(DataError, match=r"it has 0, 2, the source has bike, lamp, mug; one has ids"):
        read_target(tmp_path / "list.txt", CLASSES)
    target = read_target(tmp_path / "list.txt", ("mug", "lamp", "bike"), classes=CLASSES)
    assert target.labelled is not None
    assert contents(target.labelled) == [("a.jpg", "mug"), ("b.jpg", "bike")]


def test_lists_that_number_classes_differently_are_matched_by_their_folders(office: Path) -> None:
    (office / "source.txt").write_text("bike/c.png 0\nlamp/d.webp 1\nmug/a.jpg 2\n")
    (office / "target.txt").write_text("bike/c.png 2\nlamp/d.webp 0\nmug/a.jpg 1\n")
    source = read_source(office / "source.txt")
    target = read_target(office / "target.txt", source.classes)
    assert target.labelled is not None
    assert contents(target.labelled) == contents(source)


def test_the_order_of_a_target_does_not_depend_on_its_labels(office: Path) -> None:
    lines = ["bike/c.png", "lamp/d.webp", "mug/a.jpg"]
    (office / "one.txt").write_text("".join(f"{path} {label}\n" for path, label in zip(lines, "012", strict=True)))
    (office / "two.txt").write_text(
        "".join(f"{path} {label}\n" for path, label in zip(lines[::-1], "012", strict=True))
    )
    (office / "none.txt").write_text("\n".join(lines[::-1]))
    orders = {read_target(office / name, CLASSES).domain.paths for name in ("one.txt", "two.txt", "none.txt")}
    assert len(orders) == 1


def test_a_source_list_without_labels_names_each_line(office: Path) -> None:
    (office / "list.txt").write_text("mug/a.jpg 1\nmug/b.jpg\nbike/c.png\n")
    with pytest.raises(MalformedLines) as caught:
        read_source(office / "list.txt")
    assert [line for line, _ in caught.value.problems] == [2, 3]


def test_a_file_address_is_the_path_in_it(two_domains: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = (place.as_uri() for place in two_domains)
    (tmp_path / "classes.txt").write_text("ant\nbee\ncat\n")
    (tmp_path / "list.txt").write_text("".join(f"{name}/000.png {name}\n" for name in ("ant", "bee", "cat")))
    settings = [f"data.source={source}", f"data.target={target}"]
    require_settings(None, settings, {})
    named = read_source(source, classes=(tmp_path / "classes.txt").as_uri())
    assert named == read_source(two_domains[0])
    assert read_target(target, named.classes) == read_target(two_domains[1], named.classes)
    below = [read_source(tmp_path / "list.txt", root=root) for root in (source, two_domains[0])]
    assert below[0] == below[1]
    domain = read_target(target, named.classes).domain
    labels = read_target_labels(target, domain, named.classes, kept_share=0, seed=0)
    assert len(labels.trained) == len(domain)
    with pytest.raises(DataError, match="given twice"):
        require_settings(None, [f"data.source=[{source}, {two_domains[0]}]", f"data.target={target}"], {})
