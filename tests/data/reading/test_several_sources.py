"""Several sources are read as one: classes by name, and for each image where it came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from pmtrans.config.sources import one_or_several, source_names
from pmtrans.data.domain import holdout_places, split_at, subset
from pmtrans.data.reading.several import read_sources, source_warnings
from pmtrans.errors import DataError
from tiny_run import write_images


def test_classes_are_the_union_and_matched_by_name(tmp_path: Path) -> None:
    write_images(tmp_path / "a", ("cat", "Dog"), 2)
    write_images(tmp_path / "b", ("dog", "owl"), 3)
    source = read_sources([tmp_path / "a", tmp_path / "b"])
    assert source.classes == ("Dog", "cat", "owl")
    assert source.sources == ("a", "b")
    found = [
        (source.sources[origin], Path(path).parent.name, source.classes[label])
        for path, label, origin in zip(source.paths, source.labels, source.origins, strict=True)
    ]
    assert found == [
        *[("a", "Dog", "Dog")] * 2, *[("a", "cat", "cat")] * 2, *[("b", "dog", "Dog")] * 3, *[("b", "owl", "owl")] * 3
    ]  # fmt: skip
    assert source_warnings(source) == (
        "source 'a' has no images of 1 classes: owl",
        "source 'b' has no images of 1 classes: cat",
    )


def test_a_source_of_one_class_is_enough_among_several(tmp_path: Path) -> None:
    write_images(tmp_path / "a", ("cat", "dog"), 2)
    write_images(tmp_path / "b", ("dog",), 2)
    assert read_sources([tmp_path / "a", tmp_path / "b"]).labels == (0, 0, 1, 1, 1, 1)


def test_one_source_is_what_it_was(tmp_path: Path) -> None:
    write_images(tmp_path / "a", ("cat", "dog"), 2)
    source = read_sources([tmp_path / "a"])
    assert (source.origins, source.sources, source_warnings(source)) == ((), (), ())
    assert subset(source, [3, 0]).labels == (1, 0)


def test_every_source_holds_out_its_own_share_of_every_class(tmp_path: Path) -> None:
    write_images(tmp_path / "a", ("cat", "dog"), 10)
    write_images(tmp_path / "b", ("cat", "dog"), 5)
    source = read_sources([tmp_path / "a", tmp_path / "b"])
    training, holdout = split_at(source, holdout_places(source, 0.2, seed=0))
    counts = {(origin, label): 0 for origin in (0, 1) for label in (0, 1)}
    for origin, label in zip(holdout.origins, holdout.labels, strict=True):
        counts[origin, label] += 1
    assert counts == {(0, 0): 2, (0, 1): 2, (1, 0): 1, (1, 1): 1}
    assert sorted(training.paths + holdout.paths) == sorted(read_sources([tmp_path / "a", tmp_path / "b"]).paths)
    assert all(f"/{'ab'[origin]}/" in path for path, origin in zip(holdout.paths, holdout.origins, strict=True))


def test_what_cannot_be_one_source_is_one_line(tmp_path: Path) -> None:
    write_images(tmp_path / "a", ("cat", "dog"), 2)
    write_images(tmp_path / "b", ("owl", "yak"), 2)
    write_images(tmp_path / "numbers", ("0", "1"), 2)
    a, b = tmp_path / "a", tmp_path / "b"
    (tmp_path / "link").symlink_to(a)
    for places, said in (
        ([a, b], "source '[ab]' has no class in common with the other sources"),
        ([a, a], "is given twice: each source once"),
        ([a, tmp_path / "link"], "is given twice"),
        ([a, tmp_path / "nowhere"], "there is no such folder or file"),
        ([a, tmp_path / "numbers"], "source 'numbers' has class ids, another has names: give a classes file"),
    ):
        with pytest.raises(DataError, match=said) as raised:
            read_sources(places)
        assert "\n" not in str(raised.value)


def test_names_are_as_short_as_they_can_be_told_apart(tmp_path: Path) -> None:
    assert source_names(["x/a", "x/b"]) == ("a", "b")
    assert source_names(["x/a", "y/a", "y/b"]) == ("x/a", "y/a", "b")


def test_one_of_a_list_is_one() -> None:
    assert one_or_several(["a"]) == "a"
    assert one_or_several([Path("a"), "b"]) == ("a", "b")
    assert one_or_several(None) is None
