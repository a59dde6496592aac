from __future__ import annotations

from dataclasses import replace
from math import erf, sqrt
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from pmtrans.selection.assessment import Change, change_to_adapted, shipped_constants
from pmtrans.selection.estimate import estimate_accuracy
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.signals import PairSignals, read_pair
from pmtrans.selection.verdict import LEAST_IMAGES, Verdict, answer_probabilities, verdict
from simulation import CLASSES, EVEN, simulate


def partly(truth: Tensor, wrong: Tensor, share: float, seed: int = 1) -> Tensor:
    """``truth`` with a random share of images called ``wrong``."""
    chosen = torch.rand(len(truth), generator=torch.Generator().manual_seed(seed)) < share
    return torch.where(chosen, wrong, truth)


def judge(baseline: Evidence, adapted: Evidence) -> Verdict:
    pair = read_pair(baseline, adapted)
    accuracy = estimate_accuracy(baseline).accuracy
    return verdict(change_to_adapted(pair, accuracy, shipped_constants()), pair)


def found_by_neighbours(baseline: Evidence, adapted: Evidence) -> float:
    """Arbitration in plain loops: ten nearest by cosine, among what both call alike and the labelled source."""
    before, now = baseline.target_logits_MK.argmax(1).tolist(), adapted.target_logits_MK.argmax(1).tolist()
    target, source = (
        (features.double() / features.double().norm(dim=1, keepdim=True))
        for features in (baseline.target_features_MD, baseline.source_features_ND)
    )
    agreed = [m for m in range(len(now)) if before[m] == now[m]]
    witnesses = torch.cat([target[agreed], source])
    labels = [now[m] for m in agreed] + baseline.source_labels_N.tolist()
    balance = 0
    for m in range(len(now)):
        if before[m] != now[m]:
            cosines = (witnesses @ target[m]).tolist()
            nearest = sorted(range(len(labels)), key=lambda w: -cosines[w])[:10]
            votes = [labels[w] for w in nearest]
            balance += (votes.count(now[m]) > votes.count(before[m])) - (votes.count(now[m]) < votes.count(before[m]))
    return balance / len(now)


def pair(**changed: Any) -> PairSignals:
    base = PairSignals(0.1, 60, 20, disputed=0.2, dead=0.0, source_drop=0.0, images=400, classes=10)
    return replace(base, **changed)


def test_the_probabilities_are_those_of_a_normal_change() -> None:
    def below(x: float) -> float:
        return 0.5 * (1 + erf((x - 0.03) / (0.04 * sqrt(2))))

    found = answer_probabilities(Change(0.03, 0.04))
    assert found["hurt"] == pytest.approx(below(-0.02))
    assert found["unchanged"] == pytest.approx(below(0.02) - below(-0.02))
    assert found["helped"] == pytest.approx(1 - below(0.02))


@pytest.mark.parametrize(
    ("gain", "deviation", "expected"),
    [
        (0.10, 0.04, "helped"),
        (-0.10, 0.04, "hurt"),
        (0.001, 0.01, "unchanged"),
        (0.06, 0.08, "cannot tell"),  # probable, but its opposite is too
        (0.001, 0.05, "cannot tell"),  # a gain of a tenth of a point is no help
        (0.026, 0.02, "helped"),  # 0.62
        (0.024, 0.02, "cannot tell"),  # 0.58
    ],
)
def test_the_most_probable_answer_is_given_if_it_is_probable_enough(
    gain: float, deviation: float, expected: str
) -> None:
    said = verdict(Change(gain, deviation), pair())
    assert said.name == expected
    assert said.probability == pytest.approx(max(answer_probabilities(Change(gain, deviation)).values()))


def test_the_stated_probability_is_corrected_by_what_was_found_on_tasks_left_out() -> None:
    plain, corrected = (verdict(Change(0.1, 0.04), pair(), 0.0, r) for r in (None, {"helped": 0.8}))
    assert corrected.probability == pytest.approx(0.8 * plain.probability)
    assert verdict(Change(0.1, 0.04), pair(), 0.0, {"helped": 0.6}).name == "cannot tell"  # 0.98 x 0.6
    assert corrected.name == plain.name == "helped"


def test_with_few_images_it_cannot_be_told() -> None:
    assert verdict(Change(0.3, 0.01), pair(images=LEAST_IMAGES)).name == "helped"
    said = verdict(Change(0.3, 0.01), pair(images=LEAST_IMAGES - 1))
    assert said.name == "cannot tell"
    assert f"{LEAST_IMAGES - 1} target images are too few" in said.reason


def test_a_gain_of_a_model_that_forgot_the_source_is_not_believed() -> None:
    said = verdict(Change(0.1, 0.03), pair(source_drop=0.2))
    assert said.name == "cannot tell"
    assert "20.0 points of accuracy on the source were lost" in said.reason
    assert verdict(Change(-0.1, 0.03), pair(source_drop=0.2)).name == "hurt"


def test_a_gain_is_not_believed_where_classes_died_out() -> None:
    said = verdict(Change(0.1, 0.03), pair(dead=0.05))
    assert said.name == "cannot tell"
    assert "classes that held 5% of the target images died out" in said.reason
    assert verdict(Change(0.1, 0.03), pair(dead=0.049)).name == "helped"
    assert verdict(Change(-0.1, 0.03), pair(dead=0.1)).name == "hurt"


def test_an_adaptation_that_repairs_the_clusters_helped() -> None:
    world = simulate(EVEN)
    adapted = world.adapted_to(partly(world.truth_M, world.baseline.target_predictions_M(), 0.1))
    assert world.accuracy(adapted) > world.accuracy(world.baseline) + 0.05
    said = judge(world.baseline, adapted)
    assert said.name == "helped"
    slope = shipped_constants().gain.coefficients[0]
    assert said.gain == pytest.approx(slope * found_by_neighbours(world.baseline, adapted) * 600 / 650)


@pytest.mark.parametrize("seed", range(3))
def test_spreading_a_dominant_class_over_all_classes_hurt(seed: int) -> None:
    """Strong label shift: a method that wants balanced classes takes images from the class that has most."""
    world = simulate([0.75] + [0.05] * 5, seed=seed)
    calls = world.baseline.target_predictions_M()
    balanced = torch.where(calls == 0, torch.arange(len(calls)) % CLASSES, calls)
    adapted = world.adapted_to(balanced)
    assert world.accuracy(adapted) < world.accuracy(world.baseline) - 0.2
    assert judge(world.baseline, adapted).name == "hurt"


def test_collapse_into_half_of_the_classes_hurt() -> None:
    world = simulate(EVEN)
    said = judge(world.baseline, world.adapted_to(world.baseline.target_predictions_M() % 3))
    assert said.name == "hurt"
    assert "collapsed" in said.reason


def test_the_same_predictions_more_confident_are_unchanged() -> None:
    world = simulate(EVEN)
    said = judge(world.baseline, world.adapted_to(world.baseline.target_predictions_M()))
    assert (said.name, said.gain) == ("unchanged", 0.0)


def test_random_changes_of_a_few_unsure_images_are_not_called_help() -> None:
    world = simulate(EVEN)
    second = world.baseline.target_logits_MK.topk(2, dim=1).indices[:, 1]
    calls = partly(world.baseline.target_predictions_M(), second, 0.02)
    assert judge(world.baseline, world.adapted_to(calls)).name != "helped"


def test_the_source_accuracy_that_was_lost_is_measured() -> None:
    world = simulate(EVEN)
    calls = partly(world.baseline.source_labels_N, (world.baseline.source_labels_N + 1) % CLASSES, 0.2)
    adapted = replace(world.baseline, source_logits_NK=one_hot(calls, CLASSES).float())
    lost = (calls != world.baseline.source_labels_N).double().mean().item()
    before = (world.baseline.source_predictions_N() != world.baseline.source_labels_N).double().mean().item()
    assert read_pair(world.baseline, adapted).source_drop == pytest.approx(lost - before)


def test_the_reason_is_one_line() -> None:
    world = simulate(EVEN)
    assert "\n" not in judge(world.baseline, world.adapted_to(world.truth_M)).reason


def test_a_verdict_states_how_often_its_kind_was_right_and_never_more_than_97_percent() -> None:
    sure = Change(0.3, 0.01)
    assert verdict(sure, pair()).probability == pytest.approx(1.0)
    assert verdict(sure, pair(), reliability={"helped": 0.8}).probability == pytest.approx(0.8)
    assert verdict(sure, pair(), reliability={"helped": 1.0}).probability == pytest.approx(0.97)
    assert verdict(sure, pair(), reliability={"hurt": 0.5}).probability == pytest.approx(0.97)
