"""The losses of SSRT, CDTrans, TVT, MCC and MIC against numpy and scipy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import entr, log_softmax, rel_entr, softmax

from pmtrans.losses.class_confusion import minimum_class_confusion
from pmtrans.losses.distillation import distillation_loss
from pmtrans.losses.information_maximisation import information_maximisation_loss
from pmtrans.losses.masked_consistency import masked_consistency_loss
from pmtrans.losses.self_refinement import self_refinement_loss


def logits(seed: int = 0, images: int = 5, classes: int = 4, scale: float = 2.0) -> torch.Tensor:
    return scale * torch.randn(images, classes, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_mcc_is_the_mean_confusion_between_two_different_classes(temperature: float) -> None:
    z = logits()
    p = softmax(z.numpy().astype(float) / temperature, axis=1)
    weight = 1 + np.exp(-entr(p).sum(1))
    weight = len(weight) * weight / weight.sum()
    correlation = [[sum(weight[i] * p[i, j] * p[i, k] for i in range(5)) for k in range(4)] for j in range(4)]
    expected = sum(correlation[j][k] / sum(correlation[j]) for j in range(4) for k in range(4) if j != k) / 4
    assert float(minimum_class_confusion(z, temperature)) == pytest.approx(expected, rel=1e-5)


def test_mcc_has_the_gradient_of_fixed_weights() -> None:
    z = logits().double().requires_grad_()
    minimum_class_confusion(z, 2.5).backward()
    p = softmax(z.detach().numpy() / 2.5, axis=1)
    weight = 1 + np.exp(-entr(p).sum(1))
    weight = len(weight) * weight / weight.sum()

    def confusion(values: np.ndarray) -> float:
        q = softmax(values / 2.5, axis=1)
        c = q.T @ np.diag(weight) @ q
        c = c / c.sum(1, keepdims=True)
        return float((c.sum() - np.trace(c)) / 4)

    assert z.grad is not None
    for place in [(0, 0), (2, 3), (4, 1)]:
        step = np.zeros((5, 4))
        step[place] = 1e-6
        slope = (confusion(z.detach().numpy() + step) - confusion(z.detach().numpy() - step)) / 2e-6
        assert float(z.grad[place]) == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("base", [2.0, np.e])
def test_information_maximisation_is_the_negated_mutual_information(base: float) -> None:
    z = logits()
    p = softmax(z.numpy().astype(float), axis=1)
    expected = (entr(p).sum(1).mean() - entr(p.mean(0)).sum()) / np.log(base)
    assert float(information_maximisation_loss(z, base)) == pytest.approx(expected, rel=1e-5)


def test_information_maximisation_stays_finite_for_a_class_that_nobody_predicts() -> None:
    z = torch.tensor([[300.0, 0.0, -300.0], [0.0, 300.0, -300.0]], requires_grad=True)
    loss = information_maximisation_loss(z, 2)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(-1)
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_self_refinement_is_the_mean_divergence_of_the_sure_ones() -> None:
    taught, learning = logits(1), logits(2)
    p, q = (softmax(z.numpy().astype(float), axis=1) for z in (taught, learning))
    sure = [i for i in range(5) if p[i].max() > 0.6]
    assert 0 < len(sure) < 5
    expected = np.mean([rel_entr(p[i], q[i]).sum() for i in sure])
    assert float(self_refinement_loss(taught, learning, 0.6)) == pytest.approx(expected, rel=1e-5)


def test_self_refinement_without_a_sure_prediction_is_zero_and_trains_both_sides_otherwise() -> None:
    taught, learning = logits(1).requires_grad_(), logits(2).requires_grad_()
    assert float(self_refinement_loss(taught, learning, 0.9999).detach()) == 0
    self_refinement_loss(taught, learning, 0.4).backward()
    assert taught.grad is not None
    assert taught.grad.abs().sum() > 0
    assert learning.grad is not None
    assert learning.grad.abs().sum() > 0


def test_distillation_is_the_cross_entropy_of_two_distributions() -> None:
    teacher, student = logits(1), logits(2)
    q = softmax(teacher.numpy(), axis=1)
    expected = -(q * log_softmax(student.numpy(), axis=1)).sum(1).mean()
    assert float(distillation_loss(teacher, student)) == pytest.approx(expected, rel=1e-5)


def test_masked_consistency_weighs_each_image_by_the_confidence_of_the_teacher() -> None:
    masked, teacher = logits(1), logits(2)
    q = softmax(teacher.numpy(), axis=1)
    log_p = log_softmax(masked.numpy(), axis=1)
    expected = np.mean([-q[i].max() * log_p[i, q[i].argmax()] for i in range(5)])
    assert float(masked_consistency_loss(masked, teacher)) == pytest.approx(expected, rel=1e-5)


def test_half_precision_goes_in_and_float32_comes_out() -> None:
    half = logits().bfloat16()
    for loss in (
        minimum_class_confusion(half),
        information_maximisation_loss(half),
        self_refinement_loss(half, half.flip(0)),
        distillation_loss(half, half.flip(0)),
        masked_consistency_loss(half, half.flip(0)),
    ):
        assert loss.dtype == torch.float32
