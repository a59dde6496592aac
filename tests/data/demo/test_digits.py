"""The demo's two domains on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

from pmtrans.data.demo import digits
from pmtrans.data.demo.digits import DIGITS, handwritten_digits, render_printed_digits, write_digits
from pmtrans.errors import DataError


@pytest.fixture(autouse=True)
def few_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real digits of both domains, but only some of them: writing all takes seconds."""
    grids, labels = handwritten_digits()
    monkeypatch.setattr(digits, "PER_CLASS", 4)
    monkeypatch.setattr(digits, "handwritten_digits", lambda: (grids[:50], labels[:50]))


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, Path]:
    return write_digits(tmp_path / "digits")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def images_of(folder: Path) -> NDArray[np.uint8]:
    return np.stack([np.asarray(Image.open(path)) for path in sorted(folder.glob("*/*.png"))])


def test_both_domains_have_the_ten_class_folders(written: tuple[Path, Path]) -> None:
    for domain in written:
        assert sorted(path.name for path in domain.iterdir()) == list(DIGITS)


def test_each_image_is_in_the_folder_of_its_class(written: tuple[Path, Path]) -> None:
    source, target = written
    assert [len(list((source / digit).iterdir())) for digit in DIGITS] == [4] * 10
    per_class = [len(list((target / digit).iterdir())) for digit in DIGITS]
    assert per_class == np.bincount(load_digits().target[:50]).tolist()


def test_the_domains_are_about_two_thousand_printed_and_all_handwritten_digits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    assert digits.PER_CLASS * len(DIGITS) == 2000
    assert len(digits.handwritten_digits()[0]) == 1797


def test_every_file_is_an_8x8_grey_image_with_values_of_the_counting_grid(written: tuple[Path, Path]) -> None:
    allowed = {round(count * 255 / 16) for count in range(17)}
    for domain in written:
        images = images_of(domain)
        assert images.shape[1:] == (8, 8)
        assert images.dtype == np.uint8
        assert set(np.unique(images)) <= allowed


def test_a_target_file_holds_the_counts_that_scikit_learn_ships(written: tuple[Path, Path]) -> None:
    bundle = load_digits()
    for index in (0, 1, 49):
        image = np.asarray(Image.open(written[1] / str(bundle.target[index]) / f"{index:04d}.png"))
        np.testing.assert_array_equal(np.round(image / 255 * 16), bundle.images[index])


def test_printed_and_handwritten_digits_use_the_grid_alike() -> None:
    printed, handwritten = render_printed_digits()[0], handwritten_digits()[0]
    assert abs(printed.mean() - handwritten.mean()) < 1.5
    assert abs((printed == 0).mean() - (handwritten == 0).mean()) < 0.15
    for grids in (printed, handwritten):
        assert grids.max() == 16
        assert (grids.max(axis=2) > 0).mean() > 0.95, "the digits fill the rows"
        assert (grids[:, :, 0] > 0).mean() < 0.05, "and leave the first column free"


def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_sources(tmp_path: Path) -> None:
    first, again, other = (tmp_path / name for name in ("first", "again", "other"))
    write_digits(first, seed=3)
    write_digits(again, seed=3)
    write_digits(other, seed=4)
    assert contents(first) == contents(again)
    assert contents(first / "target") == contents(other / "target")
    assert contents(first / "source").keys() == contents(other / "source").keys()
    assert contents(first / "source") != contents(other / "source")


def test_a_complete_folder_is_used_as_it_is(tmp_path: Path) -> None:
    written = write_digits(tmp_path / "digits")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert write_digits(tmp_path / "digits") == written
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.png")}.items() <= before.items()


def test_fewer_of_each_digit_are_the_first_handwritten_ones(tmp_path: Path) -> None:
    source, target = write_digits(tmp_path / "digits", per_class=3)
    for domain in (source, target):
        assert {folder.name: len(list(folder.iterdir())) for folder in domain.iterdir()} == dict.fromkeys(DIGITS, 3)
    bundle = load_digits()
    expected = bundle.images[bundle.target == 7][:3]
    found = [np.asarray(Image.open(path)) for path in sorted((target / "7").iterdir())]
    np.testing.assert_array_equal(np.round(np.stack(found) / 255 * 16), expected)
    assert write_digits(tmp_path / "digits", per_class=3) == (source, target)
    with pytest.raises(DataError, match="holds other files"):
        write_digits(tmp_path / "digits", per_class=4)


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "digits").mkdir()
    source, _ = write_digits(tmp_path / "digits")
    assert len(list(source.glob("*/*.png"))) == 40


@pytest.mark.parametrize("change", ["missing image", "changed image", "other seed", "foreign file"])
def test_a_folder_with_anything_else_in_it_is_refused_and_left_alone(tmp_path: Path, change: str) -> None:
    folder = tmp_path / "digits"
    if change == "foreign file":
        folder.mkdir()
        (folder / "notes.txt").write_text("mine")
    else:
        write_digits(folder, seed=1 if change == "other seed" else 0)
        if change == "missing image":
            next((folder / "target" / "7").iterdir()).unlink()
        if change == "changed image":
            Image.new("L", (8, 8)).save(next((folder / "source" / "7").iterdir()))
    before = contents(tmp_path)
    with pytest.raises(DataError, match="holds other files"):
        write_digits(folder)
    assert contents(tmp_path) == before, "nothing changed, no temporary folder stays behind"
