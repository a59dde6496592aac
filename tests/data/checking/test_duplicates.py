"""Pictures that are there twice are found, by a search that agrees with comparing all pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from hostile_images import noise
from pmtrans.data.checking.duplicates import MAX_BITS, MIN_CORRELATION, Duplicates, find_duplicates, groups, near_pairs
from pmtrans.data.checking.facts import Facts, image_facts, perceptual_hash


def all_pairs(hashes: list[int], thumbnails: np.ndarray) -> set[tuple[int, int]]:
    """The definition, in plain loops."""
    found = set()
    for one in range(len(hashes)):
        for other in range(one + 1, len(hashes)):
            if bin(hashes[one] ^ hashes[other]).count("1") > MAX_BITS:
                continue
            a, b = (thumbnails[i].astype(float).ravel() for i in (one, other))
            if np.corrcoef(a, b)[0, 1] >= MIN_CORRELATION:
                found.add((one, other))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_bucketed_search_finds_what_comparing_all_pairs_finds(seed: int) -> None:
    generator = np.random.default_rng(seed)
    hashes, thumbnails = [], []
    for _ in range(20):
        base_hash = int(generator.integers(0, 2**63))
        base = generator.integers(0, 256, (16, 16, 3)).astype(float)
        for flips in (0, 0, 3, 9, 10, 11, 14):
            changed = base_hash
            for bit in generator.choice(64, flips, replace=False):
                changed ^= 1 << int(bit)
            hashes.append(changed)
            thumbnails.append(np.clip(base + generator.normal(0, 5 + 5 * flips, base.shape), 0, 255))
    stacked = np.stack(thumbnails).astype(np.uint8)
    expected = all_pairs(hashes, stacked)
    assert 20 < len(expected) < 20 * 21
    pairs = near_pairs(hashes, stacked, [50.0] * len(hashes))
    assert {(int(one), int(other)) for one, other in pairs} == expected


def test_crowds_of_one_hash_stay_connected_without_all_their_pairs() -> None:
    count = 500
    thumbnails = np.repeat(np.random.default_rng(0).integers(0, 256, (1, 16, 16, 3), dtype=np.uint8), count, 0)
    pairs = near_pairs([12345] * count, thumbnails, [50.0] * count)
    assert len(pairs) < 100 * count
    assert [len(group) for group in groups(pairs)] == [count]


def test_blank_images_are_no_near_duplicates() -> None:
    thumbnails = np.full((5, 16, 16, 3), 255, dtype=np.uint8)
    assert len(near_pairs([0] * 5, thumbnails, [0.0] * 5)) == 0


def test_groups_are_the_connected_sets() -> None:
    assert groups([(5, 6), (1, 2), (2, 3), (9, 1)]) == [[1, 2, 3, 9], [5, 6]]
    assert groups([]) == []


def picture(seed: int) -> Image.Image:
    """A smooth picture of 300 x 200, as a photograph is."""
    return noise(seed, (30, 20)).resize((300, 200), Image.Resampling.BICUBIC)


def test_the_hash_of_changed_copies_is_close_and_of_other_pictures_far() -> None:
    for seed in range(5):
        original = perceptual_hash(picture(seed))
        smaller = perceptual_hash(picture(seed).resize((150, 100)))
        brighter = perceptual_hash(ImageEnhance.Brightness(picture(seed)).enhance(1.1))
        other = perceptual_hash(picture(seed + 100))
        assert bin(original ^ smaller).count("1") <= MAX_BITS
        assert bin(original ^ brighter).count("1") <= MAX_BITS
        assert bin(original ^ other).count("1") > MAX_BITS


def test_the_hash_agrees_with_the_cosine_transform_of_scipy() -> None:
    from scipy.fft import dctn

    grey = picture(7).convert("L")
    small = np.asarray(grey.resize((32, 32), Image.Resampling.BOX), dtype=float)
    low = dctn(small, type=2)[:8, :8].ravel()
    bits = "".join("1" if value > np.median(low[1:]) else "0" for value in low)
    # In single precision the one value that is the median may fall on the other side of it.
    assert bin(perceptual_hash(grey) ^ int(bits, 2)).count("1") <= 1


def facts(folder: Path, images: dict[str, Image.Image]) -> tuple[list[str], list[Facts]]:
    folder.mkdir()
    for name, image in images.items():
        image.save(folder / name, quality=90)
    paths = [str(folder / name) for name in images]
    return paths, [image_facts(path) for path in paths]


def test_equal_and_near_copies_are_found_within_and_across(tmp_path: Path) -> None:
    source = facts(
        tmp_path / "s",
        {"a.png": picture(0), "a_again.bmp": picture(0), "b.png": picture(1), "c.png": picture(2)},
    )
    target = facts(
        tmp_path / "t",
        {
            "a.webp": picture(0).resize((200, 133)),
            "d.png": picture(3),
            "d.jpg": picture(3),
            "c.png": picture(2),
        },
    )
    equal, near = find_duplicates(*source, *target)

    def names(found: Duplicates) -> list[list[tuple[str, ...]]]:
        kinds = (found.within_source, found.within_target, found.across)
        return [[tuple(str(Path(p).relative_to(tmp_path)) for p in group) for group in kind] for kind in kinds]

    assert names(equal) == [[("s/a.png", "s/a_again.bmp")], [], [("s/c.png", "t/c.png")]]
    assert names(near) == [
        [("s/a.png", "s/a_again.bmp")],
        [("t/d.jpg", "t/d.png")],
        [("s/a.png", "s/a_again.bmp", "t/a.webp"), ("s/c.png", "t/c.png")],
    ]


def test_no_images_have_no_twins() -> None:
    assert find_duplicates([], [], [], []) == (Duplicates((), (), ()), Duplicates((), (), ()))
