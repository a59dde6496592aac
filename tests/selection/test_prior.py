"""The target's class balance without labels: each estimator against plain loops, and against a known truth."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from made_up_evidence import EvidenceMaker
from pmtrans.selection.calibration import fit_temperature
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.prior import (
    MOST_IMAGES,
    black_box_shift,
    confusion_counts,
    estimate_prior,
    for_shares,
    likelihood_shift,
    named_shares,
    reweighted,
    share_intervals,
    source_prior,
)


def clusters(labels: Tensor, noise: float = 0.3) -> tuple[Tensor, Tensor]:
    """Features around one axis per class, and logits that are right."""
    generator = torch.Generator().manual_seed(0)
    features = torch.eye(4)[labels] * 3 + noise * torch.randn(len(labels), 4, generator=generator)
    return features, 2 * features[:, :3]


def shifted() -> tuple[Evidence, Tensor]:
    """The source has equal classes, the target 60, 30 and 10 %."""
    source, target = torch.arange(3).repeat(40), torch.tensor([0] * 120 + [1] * 60 + [2] * 20)
    return Evidence(*clusters(source), source, *clusters(target)), torch.tensor([0.6, 0.3, 0.1]).double()


def test_the_estimate_and_both_others_find_the_balance() -> None:
    evidence, truth = shifted()
    prior = estimate_prior(evidence)
    assert prior.bbse_K is not None
    for found in (prior.shares_K, prior.bbse_K, prior.mlls_K):
        assert (found - truth).abs().max() < 0.02
        assert found.sum().item() == pytest.approx(1.0)
    assert ((prior.low_K <= truth) & (truth <= prior.high_K)).all()
    assert (prior.low_K <= prior.shares_K).all()
    assert (prior.shares_K <= prior.high_K).all()


def test_a_large_target_is_sampled_with_its_features_of_larger_images() -> None:
    seen, _ = shifted()
    many = torch.arange(MOST_IMAGES + 1) % 200
    features, logits = seen.target_features_MD[many], seen.target_logits_MK[many]
    ground = seen.source_features_ND, features
    large = replace(
        seen,
        target_features_MD=features,
        target_logits_MK=logits,
        source_ground_NG=ground[0],
        target_ground_MG=ground[1],
    )
    found = for_shares(large)
    assert found.target_ground_MG is not None
    assert torch.equal(found.target_ground_MG, found.target_features_MD)
    assert len(found.target_logits_MK) == MOST_IMAGES


def test_the_likelihood_is_of_calibrated_probabilities() -> None:
    """Logits ten times too large: without a temperature fitted on the source, every doubt would be gone."""
    source, target = torch.arange(3).repeat(40), torch.tensor([0] * 60 + [1] * 40 + [2] * 20)
    sides = [clusters(labels, noise=2.0) for labels in (source, target)]
    wild = Evidence(sides[0][0], 10 * sides[0][1], source, sides[1][0], 10 * sides[1][1])
    temperature = fit_temperature(wild.source_logits_NK, source)
    assert temperature > 5
    rows = (wild.target_logits_MK.double() / temperature).softmax(1)
    expected = likelihood_shift(rows, torch.tensor([1 / 3] * 3).double())
    assert estimate_prior(wild).mlls_K.tolist() == pytest.approx(expected.tolist(), abs=1e-6)
    assert (
        expected - likelihood_shift(wild.target_logits_MK.double().softmax(1), source_prior(source, 3))
    ).abs().max() > 0.01


def test_black_box_shift_sums_to_one_also_where_no_shares_explain_the_counts() -> None:
    confusion = torch.tensor([[5.0, 5.0], [5.0, 5.0]]).double()  # it says 0 and 1 as often, whatever it sees
    found = black_box_shift(confusion, torch.tensor([95.0, 5.0]).double())
    assert found.sum().item() == pytest.approx(1.0)
    assert found[0] == pytest.approx(1.0)


def test_a_confusion_matrix_counts_predicted_against_true() -> None:
    predicted, labels = torch.tensor([0, 2, 2, 1, 0]), torch.tensor([0, 1, 2, 1, 1])
    expected = [[sum(p == j and y == k for p, y in zip([0, 2, 2, 1, 0], [0, 1, 2, 1, 1], strict=True))
                 for k in range(3)] for j in range(3)]  # fmt: skip
    assert confusion_counts(predicted, labels, 3).tolist() == expected


def test_black_box_shift_undoes_the_confusion() -> None:
    """900 images of each class, a tenth of class 0 called 1: with one added right image the rates are known."""
    confusion = torch.tensor([[810.0, 0.0], [90.0, 900.0]]).double()
    right = 811 / 901
    truth = [0.7, 0.3]
    predicted = torch.tensor([truth[0] * right, truth[0] * (1 - right) + truth[1]]).double()
    assert black_box_shift(confusion, predicted).tolist() == pytest.approx(truth)


def test_a_class_without_held_out_images_is_taken_at_its_word() -> None:
    confusion = torch.tensor([[9.0, 0.0], [0.0, 0.0]]).double()
    assert black_box_shift(confusion, torch.tensor([30.0, 10.0]).double()).tolist() == pytest.approx([0.75, 0.25])


def test_likelihood_shift_is_the_fixed_point_of_plain_loops() -> None:
    torch.manual_seed(0)
    probabilities, source = torch.randn(30, 4).double().softmax(1), torch.tensor([0.1, 0.2, 0.3, 0.4]).double()
    rows, prior = probabilities.tolist(), source.tolist()
    shares = list(prior)
    for _ in range(200):
        sums = [0.0] * 4
        for row in rows:
            weighted = [p * q / s for p, q, s in zip(row, shares, prior, strict=True)]
            for k in range(4):
                sums[k] += weighted[k] / sum(weighted)
        shares = [total / len(rows) for total in sums]
    assert likelihood_shift(probabilities, source).tolist() == pytest.approx(shares, abs=1e-4)


def test_the_source_prior_gives_every_class_one_image_more() -> None:
    assert source_prior(torch.tensor([0, 0, 2]), 4).tolist() == pytest.approx([3 / 7, 1 / 7, 2 / 7, 1 / 7])


def test_intervals_reach_from_what_all_say_to_what_any_says() -> None:
    """400 images: 100 that all call 0, 100 in dispute, 200 that all call 1; the ends are binomial quantiles."""
    one = torch.tensor([0] * 200 + [1] * 200)
    other = torch.tensor([0] * 100 + [1] * 300)
    low, high = share_intervals(torch.stack([one, other]), 3)
    generator = random.Random(0)

    def quantile(probability: float, level: float) -> float:
        drawn = sorted(sum(generator.random() < probability for _ in range(400)) / 400 for _ in range(400))
        return drawn[math.floor(level * 400)]

    assert low.tolist() == pytest.approx([quantile(0.25, 0.05), quantile(0.5, 0.05), 0], abs=0.02)
    assert high.tolist() == pytest.approx([quantile(0.5, 0.95), quantile(0.75, 0.95), 0], abs=0.02)


def test_reweighting_is_bayes_rule_with_another_prior() -> None:
    rows = [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]
    own, wanted = [0.2, 0.3, 0.5], [0.6, 0.4, 0.0]
    expected = []
    for row in rows:
        weighted = [p * w / o for p, w, o in zip(row, wanted, own, strict=True)]
        expected.append([value / sum(weighted) for value in weighted])
    got = reweighted(torch.tensor(rows), torch.tensor(own), torch.tensor(wanted))
    assert got.tolist() == [pytest.approx(row) for row in expected]


def test_where_the_wanted_prior_rules_out_all_the_probabilities_stay() -> None:
    got = reweighted(torch.tensor([[0.0, 1.0]]), torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0]))
    assert got.tolist() == [[0.0, 1.0]]


def test_many_classes_have_no_confusion_matrix(made_up: EvidenceMaker) -> None:
    prior = estimate_prior(made_up(targets=40, classes=130))
    assert prior.bbse_K is None
    assert prior.as_json([str(k) for k in range(130)])["bbse"] is None


def test_shares_have_the_names_of_the_classes() -> None:
    assert named_shares(torch.tensor([0.25, 0.75]), ["cat", "dog"]) == {"cat": 0.25, "dog": 0.75}
