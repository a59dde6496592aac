from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from made_up_evidence import EvidenceMaker
from pmtrans.errors import UserError
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.validators.dev import controlled_risk, density_ratio, dev


def test_dev_is_the_controlled_risk_of_weighted_cross_entropies(made_up: EvidenceMaker) -> None:
    evidence = made_up(targets=90, sources=60)
    logits = np.asarray(evidence.source_logits_NK.double())
    losses = np.array(
        [
            np.log(np.exp(row).sum()) - row[label]
            for row, label in zip(logits, evidence.source_labels_N.tolist(), strict=True)
        ]
    )
    assert evidence.source_train_features_PD is not None
    weights = density_ratio(
        evidence.source_train_features_PD.numpy(),
        evidence.target_features_MD.numpy(),
        evidence.source_features_ND.numpy(),
    )
    weighted = weights * losses
    covariance = ((weighted - weighted.mean()) * (weights - weights.mean())).sum() / 59
    eta = -covariance / (((weights - weights.mean()) ** 2).sum() / 59)
    risk = weighted.mean() + eta * weights.mean() - eta
    assert dev(evidence) == pytest.approx(-risk)


def test_the_control_variate_leaves_a_constant_loss_alone() -> None:
    weights = np.array([0.1, 2.0, 0.7, 5.0])
    assert controlled_risk(weights, np.full(4, 0.3)) == pytest.approx(0.3)


@pytest.mark.parametrize("weights", [[1.7], [0.5, 0.5, 0.5]])
def test_equal_weights_need_no_control(weights: list[float]) -> None:
    losses = np.arange(1.0, len(weights) + 1)
    assert controlled_risk(np.array(weights), losses) == pytest.approx(weights[0] * losses.mean())


def test_the_density_ratio_is_that_of_two_known_gaussians() -> None:
    rng = np.random.default_rng(0)
    source, target = rng.normal(0.0, 1.0, (4000, 1)), rng.normal(1.0, 1.0, (2000, 1))
    points = np.array([[-1.0], [0.0], [0.5], [1.0], [2.0]])
    known = np.exp(points[:, 0] - 0.5)  # N(1, 1) / N(0, 1)
    np.testing.assert_allclose(density_ratio(source, target, points), known, rtol=0.15)


def test_dev_estimates_the_target_risk_under_covariate_shift() -> None:
    """One feature, wrong on the right half: the target lives there, the source does not."""
    rng = np.random.default_rng(1)

    def domain(mean: float, images: int) -> tuple[Tensor, Tensor]:
        features = rng.normal(mean, 1.0, (images, 1)).astype(np.float32)
        wrong = features[:, 0] > 1.0
        logits = np.where(wrong[:, None], [[0.0, 1.0]], [[3.0, 0.0]]).astype(np.float32)
        return torch.tensor(features), torch.tensor(logits)

    (train, _), (source, logits), (target, target_logits) = domain(0, 2000), domain(0, 2000), domain(1, 2000)
    labels = torch.zeros(2000, dtype=torch.long)
    evidence = Evidence(source, logits, labels, target, target_logits, train)
    true_risk = torch.nn.functional.cross_entropy(target_logits, labels).item()
    source_risk = torch.nn.functional.cross_entropy(logits, labels).item()
    assert abs(-dev(evidence) - true_risk) < 0.1 < true_risk - source_risk


def test_dev_without_training_features_says_what_is_missing(made_up: EvidenceMaker) -> None:
    with pytest.raises(UserError, match="source_train_features_PD"):
        dev(replace(made_up(), source_train_features_PD=None))
