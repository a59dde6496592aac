from __future__ import annotations

import numpy as np
import pytest
import torch

from pmtrans.labelling.choice import most_informative, pick_images
from pmtrans.selection.evidence import Evidence


def evidence(images: int, classes: int = 4, held: int = 40, seed: int = 0) -> Evidence:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    labels = torch.arange(held) % classes
    return Evidence(random(held, 6), random(held, classes), labels, random(images, 6), 3 * random(images, classes))


def test_half_is_chosen_and_half_is_drawn_and_the_weights_sum_to_the_target() -> None:
    picks = pick_images(evidence(300), 50, seed=0)
    assert len({pick.index for pick in picks}) == 50
    assert sum(pick.why == "chosen" for pick in picks) == 25
    assert sum(pick.weight for pick in picks) == pytest.approx(300)
    assert {pick.weight for pick in picks if pick.why == "drawn"} == {275 / 25}


def test_the_chosen_half_does_not_depend_on_the_seed_and_the_drawn_half_does() -> None:
    first, other = (pick_images(evidence(300), 20, seed) for seed in (0, 1))
    chosen = [[pick.index for pick in picks if pick.why == "chosen"] for picks in (first, other)]
    drawn = [[pick.index for pick in picks if pick.why == "drawn"] for picks in (first, other)]
    assert chosen[0] == chosen[1]
    assert drawn[0] != drawn[1]


def test_a_target_no_larger_than_asked_for_is_taken_whole() -> None:
    picks = pick_images(evidence(7), 10, seed=0)
    assert [(pick.index, pick.why, pick.weight) for pick in picks] == [(index, "chosen", 1.0) for index in range(7)]


def test_predicted_classes_take_turns() -> None:
    predicted = torch.tensor([0] * 90 + [1] * 6 + [2] * 2)
    entropy = torch.rand(98, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    picked = most_informative(entropy, predicted, torch.randn(98, 5), 12)
    counts = np.bincount(predicted[picked], minlength=3)
    assert counts.tolist() == [5, 5, 2]


def test_each_pick_is_the_greatest_entropy_times_distance_among_its_class() -> None:
    """Against a plain loop over images."""
    generator = torch.Generator().manual_seed(3)
    entropy = torch.rand(40, generator=generator, dtype=torch.float64)
    features = torch.randn(40, 5, generator=generator)
    predicted = torch.randint(0, 3, (40,), generator=generator)
    means = {k: float(entropy[predicted == k].mean()) for k in range(3)}
    order = sorted(range(3), key=lambda k: -means[k])
    unit = features.numpy() / np.linalg.norm(features.numpy(), axis=1, keepdims=True)
    expected: list[int] = []
    for turn in range(9):
        best, most = -1, -1.0
        for image in range(40):
            if int(predicted[image]) != order[turn % 3] or image in expected:
                continue
            nearest = min((1 - float(unit[image] @ unit[other]) for other in expected), default=1.0)
            value = float(entropy[image]) * min(max(nearest, 0.0), 1.0)
            if value > most:
                best, most = image, value
        expected.append(best)
    assert most_informative(entropy, predicted, features, 9) == expected


def test_of_two_images_that_look_the_same_one_is_enough() -> None:
    entropy = torch.tensor([1.0, 0.99, 0.3], dtype=torch.float64)
    features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert most_informative(entropy, torch.zeros(3, dtype=torch.long), features, 2) == [0, 2]
