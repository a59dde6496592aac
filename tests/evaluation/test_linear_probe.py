"""The probe against scikit-learn's logistic regression and against rules computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from pmtrans.backbones.head import create_head
from pmtrans.evaluation import linear_probe
from pmtrans.evaluation.linear_probe import fit_probe, one_standard_error


def clusters(images: int, classes: int = 3, width: int = 5, seed: int = 0, noise: float = 1.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, width, generator=torch.Generator().manual_seed(99))
    labels = torch.arange(images) % classes
    return centres[labels] + noise * torch.randn(images, width, generator=generator), labels


def test_a_linear_head_is_scikit_learns_logistic_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = clusters(90)
    monkeypatch.setattr(linear_probe, "WITHOUT_HOLDOUT", 0.05)
    monkeypatch.setattr(linear_probe, "SMALL", 80)
    probe = fit_probe(create_head("linear", 5, 3), features, labels, features[:0], labels[:0], seed=0)
    # scikit-learn minimises C sum CE + |w|^2 / 2: strength = 1 / (C N)
    theirs = LogisticRegression(C=1 / (0.05 * 90), tol=1e-8, max_iter=1000).fit(features.numpy(), labels.numpy())
    with torch.no_grad():
        ours = probe.head(features).softmax(1).numpy()
    assert np.allclose(ours, theirs.predict_proba(features.numpy()), atol=2e-4)
    assert probe.holdout_accuracy is None


def test_the_strongest_regularisation_within_one_standard_error_is_taken() -> None:
    # best 0.80 of 100 images: standard error 0.04, so 0.77 is as good and 0.75 is not
    assert one_standard_error([0.50, 0.75, 0.77, 0.80, 0.79], 100) == 2
    assert math.sqrt(0.8 * 0.2 / 100) == pytest.approx(0.04)
    assert one_standard_error([1.0, 1.0], 10) == 0


def test_the_choice_is_made_on_the_held_out_source_alone() -> None:
    features, labels = clusters(120, noise=1.5)
    held, held_labels = clusters(60, seed=1, noise=1.5)
    probe = fit_probe(create_head("linear", 5, 3), features, labels, held, held_labels, seed=0)
    assert probe.strength in linear_probe.STRENGTHS
    with torch.no_grad():
        right = (probe.head(held).argmax(1) == held_labels).double().mean().item()
    assert probe.holdout_accuracy == pytest.approx(right)


def test_with_few_held_out_images_the_strength_is_chosen_on_images_left_out_in_turn() -> None:
    labels = torch.cat([torch.zeros(80), torch.ones(20)]).long()  # a strong penalty calls all the frequent class
    features = labels[:, None] + 0.2 * torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    held, held_labels = features[:6], labels[:6]  # right at any strength: they would choose the strongest
    probe = fit_probe(create_head("linear", 2, 2), features, labels, held, held_labels, seed=0)
    accuracies = []
    for strength in linear_probe.STRENGTHS:
        right = 0
        for fold in range(5):
            first, second = 16 * fold, 80 + 4 * ((fold - 1) % 5)
            out = [*range(first, first + 16), *range(second, second + 4)]
            kept = [place for place in range(100) if place not in out]
            theirs = LogisticRegression(C=2 / (strength * len(kept)), tol=1e-8, max_iter=1000)  # w, not +-w / 2
            theirs.fit(features[kept].numpy(), labels[kept].numpy())
            right += int((theirs.predict(features[out].numpy()) == labels[out].numpy()).sum())
        accuracies.append(right / 100)
    chosen = one_standard_error(accuracies, 100)
    assert probe.strength == linear_probe.STRENGTHS[chosen] != linear_probe.STRENGTHS[0]
    assert probe.folds_accuracy == pytest.approx(accuracies[chosen])
    assert probe.holdout_accuracy == 1.0


def test_enough_held_out_images_and_a_handful_of_a_source_need_no_folds() -> None:
    features, labels = clusters(120)
    assert (
        fit_probe(create_head("linear", 5, 3), features, labels, *clusters(50, seed=1), seed=0).folds_accuracy is None
    )
    few = features[:49], labels[:49]
    assert fit_probe(create_head("linear", 5, 3), *few, *clusters(6, seed=1), seed=0).folds_accuracy is None


def test_an_mlp_head_is_fitted_too_and_the_given_head_is_left_alone() -> None:
    features, labels = clusters(60)
    head = create_head("mlp", 5, 3)
    before = [parameter.clone() for parameter in head.parameters()]
    probe = fit_probe(head, features, labels, features[:30], labels[:30], seed=0)
    assert all(torch.equal(old, new) for old, new in zip(before, head.parameters(), strict=True))
    assert probe.holdout_accuracy is not None
    assert probe.holdout_accuracy > 0.8
    assert all(parameter.dtype == torch.float32 for parameter in probe.head.parameters())


def test_of_very_many_images_a_sample_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_probe, "MOST", 30)
    seen: list[int] = []
    head = create_head("linear", 5, 3)
    features, labels = clusters(90)

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = head

        def forward(self, rows: Tensor) -> Tensor:
            seen.append(len(rows))
            out: Tensor = self.head(rows)
            return out

    fit_probe(Counting(), features, labels, features[:0], labels[:0], seed=0)
    assert set(seen) == {30}


def test_with_very_many_classes_parts_of_the_images_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = clusters(1200, classes=40, width=16, noise=0.6)
    held, held_labels = clusters(400, classes=40, width=16, seed=1, noise=0.6)
    whole = fit_probe(create_head("linear", 16, 40), features, labels, held, held_labels, seed=0)
    monkeypatch.setattr(linear_probe, "MOST_LOGITS", 40_000)
    monkeypatch.setattr(linear_probe, "STEP_LOGITS", 40 * 150)
    seen: list[int] = []
    objective = linear_probe._objective

    def counted(head: nn.Module, rows: Tensor, labels: Tensor, strength: float) -> Tensor:
        seen.append(len(rows))
        return objective(head, rows, labels, strength)

    monkeypatch.setattr(linear_probe, "_objective", counted)
    parts = fit_probe(create_head("linear", 16, 40), features, labels, held, held_labels, seed=0)
    assert max(seen) == 150
    assert parts.strength == 0.003
    assert parts.holdout_accuracy is not None
    assert whole.holdout_accuracy is not None
    assert parts.holdout_accuracy >= whole.holdout_accuracy - 0.02
    with torch.no_grad():
        assert parts.holdout_accuracy == (parts.head(held).argmax(1) == held_labels).double().mean().item()
