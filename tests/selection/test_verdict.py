from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pmtrans.selection.verdict import verdict
from simulation import CLASSES, EVEN, simulate


def partly(truth: Tensor, wrong: Tensor, share: float, seed: int = 1) -> Tensor:
    """``truth`` with a random share of images called ``wrong``."""
    chosen = torch.rand(len(truth), generator=torch.Generator().manual_seed(seed)) < share
    return torch.where(chosen, wrong, truth)


def test_an_adaptation_that_repairs_the_clusters_helped() -> None:
    world = simulate(EVEN)
    adapted = world.adapted_to(partly(world.truth_M, world.baseline.target_predictions_M(), 0.1))
    assert world.accuracy(adapted) > world.accuracy(world.baseline) + 0.05
    said = verdict(world.baseline, adapted)
    assert said.name == "helped"
    assert said.gain == pytest.approx(world.accuracy(adapted) - world.accuracy(world.baseline), abs=0.12)


@pytest.mark.parametrize("seed", range(3))
def test_spreading_a_dominant_class_over_all_classes_hurt(seed: int) -> None:
    """Strong label shift: a method that wants balanced classes takes images from the class that has most."""
    world = simulate([0.75] + [0.05] * 5, seed=seed)
    calls = world.baseline.target_predictions_M()
    balanced = torch.where(calls == 0, torch.arange(len(calls)) % CLASSES, calls)
    adapted = world.adapted_to(balanced)
    assert world.accuracy(adapted) < world.accuracy(world.baseline) - 0.2
    assert verdict(world.baseline, adapted).name == "hurt"


def test_collapse_into_half_of_the_classes_hurt() -> None:
    world = simulate(EVEN)
    calls = world.baseline.target_predictions_M()
    said = verdict(world.baseline, world.adapted_to(calls % 3))
    assert said.name == "hurt"
    assert "collapsed" in said.reason


def test_the_same_predictions_more_confident_are_unchanged() -> None:
    world = simulate(EVEN)
    said = verdict(world.baseline, world.adapted_to(world.baseline.target_predictions_M()))
    assert (said.name, said.gain) == ("unchanged", 0.0)


def test_random_changes_of_a_few_unsure_images_are_not_called_help() -> None:
    world = simulate(EVEN)
    second = world.baseline.target_logits_MK.topk(2, dim=1).indices[:, 1]
    calls = partly(world.baseline.target_predictions_M(), second, 0.02)
    assert verdict(world.baseline, world.adapted_to(calls)).name in ("unchanged", "hurt")


def test_a_lost_source_without_a_gain_on_the_target_hurt() -> None:
    world = simulate(EVEN)
    adapted = world.adapted_to(world.baseline.target_predictions_M())
    wrong = (world.baseline.source_labels_N + 1) % CLASSES
    calls = partly(world.baseline.source_labels_N, wrong, 0.2)
    said = verdict(world.baseline, replace(adapted, source_logits_NK=one_hot(calls, CLASSES).float()))
    assert said.name == "hurt"
    assert "held-out source fell" in said.reason


def test_one_target_image_is_too_little_to_say_anything() -> None:
    world = simulate(EVEN, images=1)
    adapted = world.adapted_to((world.baseline.target_predictions_M() + 1) % CLASSES)
    assert verdict(world.baseline, adapted).name == "unchanged"


def test_the_reason_is_one_line() -> None:
    world = simulate(EVEN)
    assert "\n" not in verdict(world.baseline, world.adapted_to(world.truth_M)).reason
