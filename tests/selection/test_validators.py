"""Each validator against its formula, written here with plain loops or dense matrices in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.metrics import adjusted_mutual_info_score
from torch import Tensor

from made_up_evidence import EvidenceMaker
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.validators import VALIDATORS, score_all
from pmtrans.selection.validators.bnm import bnm
from pmtrans.selection.validators.class_ami import class_ami
from pmtrans.selection.validators.entropy import entropy
from pmtrans.selection.validators.information_maximisation import information_maximisation
from pmtrans.selection.validators.reverse import reverse
from pmtrans.selection.validators.snd import snd
from pmtrans.selection.validators.softmax_correlation import softmax_correlation
from pmtrans.selection.validators.source_accuracy import source_accuracy

CHUNKED: list[Callable[..., float]] = [entropy, information_maximisation, bnm, softmax_correlation, snd]


def softmax(logits: Tensor) -> npt.NDArray[np.float64]:
    rows = np.asarray(logits.double())
    powers = np.exp(rows - rows.max(1, keepdims=True))
    shares: npt.NDArray[np.float64] = powers / powers.sum(1, keepdims=True)
    return shares


def dense_entropy(logits: Tensor) -> float:
    return float(np.mean([sum(p * math.log(p) for p in row if p > 0) for row in softmax(logits)]))


def dense_information_maximisation(logits: Tensor) -> float:
    mean = softmax(logits).mean(0)
    return float(-sum(p * math.log(p) for p in mean if p > 0)) + dense_entropy(logits)


def dense_bnm(logits: Tensor) -> float:
    p = softmax(logits)
    return float(np.linalg.svd(p, compute_uv=False).sum() / math.sqrt(len(p) * min(p.shape)))


def dense_softmax_correlation(logits: Tensor) -> float:
    p = softmax(logits)
    correlation, identity = p.T @ p / len(p), np.eye(p.shape[1])
    return float((correlation * identity).sum() / np.linalg.norm(correlation) / np.linalg.norm(identity))


def dense_snd(logits: Tensor) -> float:
    p = softmax(logits)
    directions = p / np.linalg.norm(p, axis=1, keepdims=True)
    entropies = []
    for i in range(len(p)):
        similarities = [float(directions[i] @ directions[j]) / 0.05 for j in range(len(p)) if j != i]
        weights = [math.exp(s - max(similarities)) for s in similarities]
        shares = [w / sum(weights) for w in weights]
        entropies.append(-sum(s * math.log(s) for s in shares if s > 0))
    return float(np.mean(entropies))


DENSE: dict[Callable[..., float], Callable[[Tensor], float]] = {
    entropy: dense_entropy,
    information_maximisation: dense_information_maximisation,
    bnm: dense_bnm,
    softmax_correlation: dense_softmax_correlation,
    snd: dense_snd,
}


@pytest.mark.parametrize("chunk", [1, 2, 7, 36, 37, 38, 1000])
@pytest.mark.parametrize("validator", CHUNKED, ids=lambda function: function.__name__)
def test_a_validator_equals_its_formula_for_every_chunk_size(
    made_up: EvidenceMaker, validator: Callable[..., float], chunk: int
) -> None:
    evidence = made_up()
    assert validator(evidence, chunk=chunk) == pytest.approx(DENSE[validator](evidence.target_logits_MK), abs=2e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("validator", CHUNKED, ids=lambda function: function.__name__)
def test_a_validator_equals_its_formula_for_every_dtype(
    made_up: EvidenceMaker, validator: Callable[..., float], dtype: torch.dtype
) -> None:
    evidence = made_up(dtype=dtype)
    assert validator(evidence) == pytest.approx(DENSE[validator](evidence.target_logits_MK), abs=5e-6)


@pytest.mark.parametrize(
    "size",
    [{"targets": 1}, {"targets": 2, "classes": 2}, {"targets": 3, "classes": 9}, {"classes": 2}],
    ids=str,
)
@pytest.mark.parametrize("sharpness", [0.0, 1.0, 200.0])
@pytest.mark.parametrize("validator", CHUNKED, ids=lambda function: function.__name__)
def test_a_validator_equals_its_formula_at_the_edges(
    made_up: EvidenceMaker, validator: Callable[..., float], size: dict[str, Any], sharpness: float
) -> None:
    evidence = made_up(**size, sharpness=sharpness)
    expected = 0.0 if size.get("targets") == 1 and validator is snd else None
    if expected is None:
        expected = DENSE[validator](evidence.target_logits_MK)
    assert validator(evidence, chunk=2) == pytest.approx(expected, abs=5e-6)


def test_snd_keeps_its_digits_where_every_neighbour_is_far() -> None:
    logits = 50.0 * torch.eye(6)
    evidence = Evidence(torch.ones(1, 2), torch.ones(1, 6), torch.zeros(1, dtype=torch.long), logits, logits)
    assert snd(evidence) == pytest.approx(math.log(5), abs=1e-5)


def test_source_accuracy_is_the_share_of_right_answers(made_up: EvidenceMaker) -> None:
    evidence = made_up()
    right = sum(
        row.index(max(row)) == label
        for row, label in zip(evidence.source_logits_NK.tolist(), evidence.source_labels_N.tolist(), strict=True)
    )
    assert source_accuracy(evidence) == pytest.approx(right / 23)


def test_class_ami_compares_classes_with_the_clusters_of_well_separated_features(
    made_up: EvidenceMaker,
) -> None:
    evidence = made_up(targets=60, classes=3)
    clusters = torch.arange(60) % 3
    features = torch.nn.functional.one_hot(clusters, 3) + 0.01 * torch.randn(
        60, 3, generator=torch.Generator().manual_seed(0)
    )
    evidence = replace(evidence, target_features_MD=features)
    expected = adjusted_mutual_info_score(evidence.target_logits_MK.argmax(1).tolist(), clusters.tolist())
    assert class_ami(evidence) == pytest.approx(expected)
    agreeing = replace(evidence, target_logits_MK=torch.nn.functional.one_hot((clusters + 1) % 3, 3).float())
    assert class_ami(agreeing) == pytest.approx(1.0)


def test_class_ami_does_not_depend_on_the_length_of_features(made_up: EvidenceMaker) -> None:
    evidence = made_up()
    lengths = torch.linspace(0.5, 8.0, 37)[:, None]
    longer = replace(evidence, target_features_MD=evidence.target_features_MD * lengths)
    assert class_ami(evidence) == pytest.approx(class_ami(longer))


def test_reverse_is_high_when_labels_carry_back_and_low_when_they_were_permuted(
    made_up: EvidenceMaker,
) -> None:
    evidence = made_up(targets=200, classes=4, sources=80)
    aligned = replace(evidence, target_features_MD=evidence.target_features_MD - 0.5)
    permuted = replace(aligned, target_logits_MK=aligned.target_logits_MK.roll(1, dims=1))
    assert reverse(aligned) > source_accuracy(evidence) - 0.1
    assert reverse(permuted) < 0.2


def test_reverse_with_one_predicted_class_is_that_class_share_of_the_source(made_up: EvidenceMaker) -> None:
    evidence = made_up()
    logits = torch.zeros_like(evidence.target_logits_MK)
    logits[:, 2] = 1.0
    collapsed = replace(evidence, target_logits_MK=logits)
    assert reverse(collapsed) == pytest.approx(evidence.source_labels_N.tolist().count(2) / 23)


def test_reverse_thins_large_targets_evenly(made_up: EvidenceMaker) -> None:
    evidence = made_up(targets=101)
    kept = [round(i * 100 / 20) for i in range(21)]
    thinned = replace(
        evidence,
        target_features_MD=evidence.target_features_MD[kept],
        target_logits_MK=evidence.target_logits_MK[kept],
    )
    assert reverse(evidence, limit=21) == reverse(thinned)


@pytest.mark.parametrize(
    "size",
    [{"targets": 1}, {"targets": 2, "classes": 2}, {"sources": 1, "classes": 2}, {"sharpness": 0.0}],
    ids=str,
)
def test_all_scores_are_finite_at_the_edges(made_up: EvidenceMaker, size: dict[str, Any]) -> None:
    scores = score_all(made_up(**size))
    assert list(scores) == list(VALIDATORS)
    assert all(math.isfinite(score) for score in scores.values())


def test_score_all_leaves_out_what_the_evidence_or_the_caller_cannot_afford(made_up: EvidenceMaker) -> None:
    without_train = replace(made_up(), source_train_features_PD=None)
    assert set(VALIDATORS) - set(score_all(without_train)) == {"dev"}
    assert set(VALIDATORS) - set(score_all(made_up(), expensive=False)) == {"class_ami", "dev", "reverse"}


def test_score_all_adds_arbitration_where_a_baseline_is_given(made_up: EvidenceMaker) -> None:
    baseline = made_up()
    rolled = replace(baseline, target_logits_MK=baseline.target_logits_MK.roll(1, dims=1))
    assert score_all(baseline, baseline, expensive=False)["arbitration"] == 0.0
    assert score_all(rolled, baseline, expensive=False)["arbitration"] < 0.0


@pytest.mark.parametrize("name", sorted(set(VALIDATORS) - {"source_accuracy", "dev", "snd"}))
def test_higher_is_better(made_up: EvidenceMaker, name: str) -> None:
    """A classifier that knows the target classes beats one that knows nothing (chance, or noise)."""
    evidence = made_up(targets=120, classes=4, sources=60, sharpness=3.0)
    noise = torch.randn(120, 4, generator=torch.Generator().manual_seed(1))
    ignorant = replace(evidence, target_logits_MK=0.1 * noise)
    assert VALIDATORS[name].function(evidence) > VALIDATORS[name].function(ignorant)
