"""Images that look alike are held out together, so that no held-out image has a twin in training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from pmtrans.data.checking.look_alikes import look_alikes, look_of
from pmtrans.data.checking.readable import fast_check
from pmtrans.data.domain import Domain, LabelledDomain, holdout_places
from pmtrans.data.domains import read_data
from pmtrans.data.reading.read import Target
from pmtrans.progress import Reporter
from pmtrans.settings import validate


def scene(seed: int, side: int = 64) -> Image.Image:
    """Smooth blobs of colour: unlike those of another seed."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)


def frame(seed: int, number: int) -> Image.Image:
    """The scene a moment later: slightly brighter and noisier."""
    noise = np.random.default_rng([seed, number]).normal(3 * number, 2, (64, 64, 3))
    return Image.fromarray((np.asarray(scene(seed), dtype=float) + noise).clip(0, 255).astype(np.uint8))


def domain(labels: tuple[int, ...]) -> LabelledDomain:
    images = Domain(Path("x"), tuple(str(place) for place in range(len(labels))))
    return LabelledDomain(images, labels, tuple(f"c{label}" for label in range(max(labels) + 1)))


def held_places(labels: tuple[int, ...], share: float, seed: int, alike: list[list[int]]) -> set[int]:
    return set(holdout_places(domain(labels), share, seed, alike))


def test_a_group_is_held_out_whole_or_not_at_all() -> None:
    labels = (0,) * 20 + (1,) * 20
    alike = [[0, 1, 2], [4, 9], [20, 21, 22, 23], [5, 25]]  # the last has an image of each class
    held_twins = 0
    for seed in range(50):
        held = held_places(labels, 0.2, seed, alike)
        assert {label: sum(labels[place] == label for place in held) for label in (0, 1)} == {0: 4, 1: 4}
        for group in alike[:3]:
            assert len(held & set(group)) in (0, len(group))
            held_twins += len(held & set(group)) > 0
    assert held_twins > 20  # groups are not merely kept in training


def test_without_look_alikes_the_split_is_the_same_as_with_groups_of_one() -> None:
    labels = (0,) * 17 + (1,) * 8
    for seed in range(5):
        assert held_places(labels, 0.25, seed, []) == held_places(labels, 0.25, seed, [[3], [11]])


def test_a_class_of_large_groups_holds_out_the_smallest_and_a_class_of_one_group_single_images() -> None:
    three = [list(range(5)), list(range(5, 9)), list(range(9, 15))]
    assert held_places((0,) * 15, 0.1, 0, three) == {5, 6, 7, 8}
    assert len(held_places((0,) * 20, 0.1, 0, [list(range(20))])) == 2  # there is no other way to hold any out


def test_frames_of_a_scene_are_found_and_other_scenes_and_tiny_images_are_not(tmp_path: Path) -> None:
    paths = []
    for seed in range(6):
        for number in range(3 if seed == 2 else 1):
            paths.append(str(tmp_path / f"{seed}-{number}.png"))
            frame(seed, number).save(paths[-1])
    source = LabelledDomain(Domain(tmp_path, tuple(paths)), (0,) * len(paths), ("a",))
    checked = fast_check(source, Target(source.images, None, ()))
    assert look_alikes(source.paths, checked.looks) == [[2, 3, 4]]
    assert look_of(scene(0, side=31)) is None


def test_a_run_holds_out_no_frame_of_a_scene_that_it_trains_on(tmp_path: Path) -> None:
    for label, name in enumerate(("cup", "box")):
        for seed in range(5):
            for number in range(4):
                path = tmp_path / "source" / name / f"{seed}-{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                frame(10 * label + seed, number).save(path)
    (tmp_path / "target").mkdir()
    for seed in (30, 31):
        scene(seed).save(tmp_path / "target" / f"{seed}.png")
    config = validate({"data": {"source": str(tmp_path / "source"), "target": str(tmp_path / "target")}})
    data = read_data(config, Reporter(quiet=True))

    def scenes(part: LabelledDomain) -> set[tuple[str, str]]:
        return {(Path(path).parent.name, Path(path).name.split("-")[0]) for path in part.paths}

    assert len(data.holdout) == 8  # one scene of each class, as no smaller part is independent
    assert not scenes(data.source) & scenes(data.holdout)
