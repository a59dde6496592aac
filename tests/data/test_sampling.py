from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from pmtrans.data.domain import Domain, LabelledDomain, holdout_places, sample_domain, split_at
from pmtrans.data.loader import pair_batches
from pmtrans.data.reading.order import label_free_order
from pmtrans.data.reading.read import read_source, read_target
from pmtrans.data.sampling import (
    ChosenPairs,
    ClassBalancedStream,
    PairSampler,
    Share,
    Stream,
    random_seed,
    steps_per_epoch,
)
from pmtrans.data.transforms import Preprocessing, training_transform

PREPROCESSING = Preprocessing(24, 28, "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def test_each_pass_over_a_domain_sees_every_image_once_in_another_order() -> None:
    stream = Stream(seed=3, domain="source", images=10)
    draws = [stream.at(position) for position in range(30)]
    passes = [[draw.index for draw in draws[start : start + 10]] for start in (0, 10, 20)]
    assert all(sorted(order) == list(range(10)) for order in passes)
    assert passes[0] != passes[1] != passes[2]
    assert [draw.epoch for draw in draws] == [0] * 10 + [1] * 10 + [2] * 10


def test_a_sampler_that_starts_later_continues_where_the_first_would_be() -> None:
    streams = (Stream(0, "source", 7), Stream(0, "target", 11))
    whole = list(PairSampler(streams, 3, 0, 9))
    assert list(PairSampler(streams, 3, 4, 9)) == whole[4:]
    assert all([draw.domain for draw in batch] == ["source"] * 3 + ["target"] * 3 for batch in whole)


LABELS = (2, 0, 0, 2, 0, 1, 0, 2, 0, 0)  # six, one and three images of a class


def test_a_balanced_stream_has_every_class_once_in_each_round_in_another_order() -> None:
    stream = ClassBalancedStream(3, "source", LABELS)
    draws = [stream.at(position) for position in range(3 * 36)]
    rounds = [[LABELS[draw.index] for draw in draws[start : start + 3]] for start in range(0, len(draws), 3)]
    assert all(sorted(classes) == [0, 1, 2] for classes in rounds)
    assert len({tuple(classes) for classes in rounds}) == 6


def test_each_class_of_a_balanced_stream_is_passed_over_again_and_again() -> None:
    stream = ClassBalancedStream(3, "source", LABELS)
    draws = [stream.at(position) for position in range(3 * 36)]
    for label, images in ((0, 6), (1, 1), (2, 3)):
        own = [draw for draw in draws if LABELS[draw.index] == label]
        members = [index for index, other in enumerate(LABELS) if other == label]
        passes = [own[start : start + images] for start in range(0, 36, images)]
        for number, one in enumerate(passes):
            assert sorted(draw.index for draw in one) == members
            assert {draw.epoch for draw in one} == {number}
        assert len({tuple(draw.index for draw in one) for one in passes}) > 1 or images == 1
    assert len(set(draws)) == len(draws)  # no image is augmented twice in the same way


def test_a_position_of_a_balanced_stream_depends_on_seed_and_labels_alone() -> None:
    stream = ClassBalancedStream(3, "source", LABELS)
    forwards = [stream.at(position) for position in range(60)]
    backwards = [ClassBalancedStream(3, "source", LABELS).at(position) for position in reversed(range(60))]
    assert forwards == backwards[::-1] == [stream.at(position) for position in range(60)]
    assert forwards != [ClassBalancedStream(4, "source", LABELS).at(position) for position in range(60)]
    whole = PairSampler((stream, Stream(3, "target", 7)), 4, 0, 9)
    assert list(PairSampler((stream, Stream(3, "target", 7)), 4, 5, 9)) == list(whole)[5:]
    shares = [list(Share(whole, rank, 2)) for rank in (0, 1)]
    for batch, first, second in zip(whole, *shares, strict=True):
        assert [*first[:2], *second[:2], *first[2:], *second[2:]] == batch


def test_pairs_that_a_method_chose_are_used_in_order_and_again_from_the_top() -> None:
    chosen = ChosenPairs(((0, 5), (1, 6), (2, 7)), epoch=4, batch_size=2, first=0, last=2)
    batches = [[(draw.domain, draw.index) for draw in batch] for batch in chosen]
    assert batches == [
        [("source", 0), ("source", 1), ("target", 5), ("target", 6)],
        [("source", 2), ("source", 0), ("target", 7), ("target", 5)],
    ]


def test_seeds_depend_on_every_part_of_the_key() -> None:
    keys = [(0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "a", 1), (0, "a1"), (0, "a", "1")]
    assert len({random_seed(*key) for key in keys}) == len(keys)


def test_the_longer_domain_defines_an_epoch() -> None:
    assert steps_per_epoch(100, 30, 10) == 10
    assert steps_per_epoch(30, 109, 10) == 10
    assert steps_per_epoch(3, 3, 10) == 1


@pytest.mark.parametrize("augmentation", ["paper", "randaugment", "resized_crop", "autoaugment"])
def test_an_image_looks_the_same_whatever_the_workers_and_wherever_one_starts(
    augmentation: str, two_domains: tuple[Path, Path]
) -> None:
    source = read_source(two_domains[0])
    target = read_target(two_domains[1], source.classes).domain
    transform = training_transform(PREPROCESSING, augmentation, random_erasing=0.5)
    streams = (Stream(0, "source", len(source)), Stream(0, "target", len(target)))

    def images(first: int, workers: int) -> dict[tuple[int, int], torch.Tensor]:
        sampler = PairSampler(streams, 5, first, 6)
        batches = pair_batches(source, target, transform, sampler, 0, PREPROCESSING, workers)
        return {(number, 0): batch.source_images for number, batch in enumerate(batches, first)}

    whole = images(0, 0)
    later = images(3, 2 if augmentation == "paper" else 0)
    assert all(torch.equal(later[key], whole[key]) for key in later)
    assert not torch.equal(whole[(0, 0)], whole[(1, 0)])


def test_holdout_is_stratified_disjoint_and_a_function_of_the_seed() -> None:
    labels = tuple([0] * 20 + [1] * 10 + [2] * 4 + [3])
    source = LabelledDomain(Domain(Path("x"), tuple(str(n) for n in range(35))), labels, ("a", "b", "c", "d"))
    training, held = split_at(source, holdout_places(source, 0.1, seed=0))
    assert set(training.paths) | set(held.paths) == set(source.paths)
    assert not set(training.paths) & set(held.paths)
    assert Counter(held.labels) == {0: 2, 1: 1, 2: 1}  # a class with one image stays in training
    places = holdout_places(source, 0.1, seed=0)
    assert [source.paths[place] for place in places] == list(held.paths)
    assert holdout_places(source, 0.1, seed=1) != places
    assert holdout_places(source, 0.0, seed=0) == []
    assert len(sample_domain(source, 7, 0)) == 7


def test_moving_files_between_class_folders_does_not_change_the_order_of_a_target(tmp_path: Path) -> None:
    contents = {("a", "1.png"): b"xx", ("b", "1.png"): b"yy", ("a", "2.png"): b"zzz", ("c", "1.png"): b"q"}
    swapped = {"a": "c", "b": "a", "c": "b"}

    def order(root: str, rename: dict[str, str]) -> list[bytes]:
        paths = []
        for (folder, name), content in contents.items():
            place = tmp_path / root / rename.get(folder, folder) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
            paths.append(str(place))
        paths.sort()
        return [Path(paths[position]).read_bytes() for position in label_free_order(paths)]

    assert order("before", {}) == order("after", swapped)


def test_a_training_target_has_no_label_field(two_domains: tuple[Path, Path]) -> None:
    target = read_target(two_domains[1], ("ant", "bee", "cat"))
    assert type(target.domain) is Domain
    assert not hasattr(target.domain, "labels")
