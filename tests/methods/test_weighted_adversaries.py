"""CGDM and DWL: what they measure between steps, and what it changes."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from by_hand import cross_entropy
from gradients import gradient
from pmtrans.data.batch import Batch
from pmtrans.methods import Sizes
from pmtrans.methods.cgdm import CGDM, CGDMOptions
from pmtrans.methods.dwl import DWL, DWLOptions, discriminability, distance_of_means
from pmtrans.methods.method import Context, Moment, SourcePass, TargetPass
from pmtrans.model import Model
from pmtrans.pseudo_labels import kmeans_pseudo_labels

SIZES = Sizes(classes=3, source_images=12, target_images=9)


def at(step: int, phase: str = "joint") -> Moment:
    return Moment(step, 100, 10, phase)


def test_both_classifiers_of_cgdm_label_the_target_and_predict(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny()
    alone = copy.deepcopy(model.head)
    method = CGDM(model, CGDMOptions(), SIZES).eval()  # dropout would blur the labels
    features = torch.randn(9, model.backbone.features, generator=torch.Generator().manual_seed(0))
    second = {name.removeprefix("model.head.second."): p for name, p in method.named_parameters() if ".second." in name}
    calls: list[int] = []

    def target_pass() -> TargetPass:
        calls.append(1)
        with torch.no_grad():
            return TargetPass(features, model.head(features))

    for step in (0, 5, 10, 15):
        method.before_step(at(step), Context(target_pass))
    assert len(calls) == 2  # at 0 and at 10, where the next epoch begins
    with torch.no_grad():
        hidden = (features @ second["0.weight"].T + second["0.bias"]).clamp_min(0)
        both = alone(features) + hidden @ second["3.weight"].T + second["3.bias"]
        assert torch.allclose(model.head(features), both, atol=1e-6)
    assert torch.equal(method.pseudo_labels_M, kmeans_pseudo_labels(features, logits_MK=both))
    assert "gradient_discrepancy" in method(batch_for(model), at(30, "features_1"))


def test_distance_and_discriminability_are_those_of_linear_discriminant_analysis() -> None:
    random = np.random.default_rng(0)
    labels = np.arange(60) % 3
    features = random.normal(size=(60, 4)) + 2 * np.eye(3, 4)[labels]
    found = float(discriminability(torch.tensor(features).float(), torch.tensor(labels), 3))
    # the ratios of between to within scatter are eigenvalues of S_w^-1 S_b; sklearn reports their shares
    within = sum((labels == c).sum() * np.cov(features[labels == c].T, bias=True) for c in range(3))
    means = [features[labels == c].mean(0) - features.mean(0) for c in range(3)]
    between = sum(20 * np.outer(mean, mean) for mean in means)
    eigenvalues = np.sort(np.linalg.eigvals(np.linalg.inv(within) @ between).real)[::-1]
    assert found == pytest.approx(eigenvalues.sum(), rel=1e-3)
    shares = LinearDiscriminantAnalysis(solver="eigen").fit(features, labels).explained_variance_ratio_
    assert eigenvalues[:2] / eigenvalues.sum() == pytest.approx(shares[:2], rel=1e-6)
    one, other = torch.randn(5, 3), torch.randn(7, 3)
    expected = sum((one[:, k].mean() - other[:, k].mean()) ** 2 for k in range(3))
    assert float(distance_of_means(one, other)) == pytest.approx(float(expected), rel=1e-5)


def test_discriminability_survives_more_features_than_images_and_absent_classes() -> None:
    value = discriminability(torch.randn(6, 20), torch.tensor([0, 0, 1, 1, 3, 3]), 5)
    assert value.isfinite()
    assert value > 0


def balance_after(method: DWL, shift: float, spread: float, step: int) -> float:
    """tau after an epoch in which domains are ``shift`` apart and classes ``spread`` apart."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(30) % 3
    base = torch.randn(30, 4, generator=generator) * 0.3 + spread * torch.eye(3, 4)[labels]
    logits = 9 * torch.eye(3)[labels]
    source, target = SourcePass(base, logits, labels), TargetPass(base + shift, logits)
    method.before_step(at(step), Context(lambda: target, lambda: source))
    return float(method.balance)


def test_dwl_weighs_what_lags_behind(tiny: Callable[..., Model]) -> None:
    method = DWL(tiny(), DWLOptions(hidden=8), SIZES)
    assert balance_after(method, shift=1.0, spread=1.0, step=0) == pytest.approx(0.5)  # nothing to compare with yet
    assert balance_after(method, shift=3.0, spread=3.0, step=10) == pytest.approx(1.0, abs=1e-3)  # far apart: align
    assert balance_after(method, shift=1.0, spread=1.0, step=20) == pytest.approx(0.0, abs=1e-3)  # aligned: classes
    even = balance_after(method, shift=5**0.5, spread=1.0, step=30)  # A = 5, halfway from 1 to 9; J at its least
    assert even == pytest.approx(0.5 / 1.5, rel=1e-3)
    assert balance_after(method, shift=3.0, spread=3.0, step=35) == pytest.approx(even)  # not the start of an epoch


def domain_loss(discriminator: torch.nn.Module, f_s: torch.Tensor, f_t: torch.Tensor) -> torch.Tensor:
    """Binary cross entropy, source = 1, the mean of both domains' means."""
    d_s, d_t = torch.sigmoid(discriminator(f_s)), torch.sigmoid(discriminator(f_t))
    return -(d_s.log().mean() + (1 - d_t).log().mean()) / 2


def test_the_balance_weighs_alignment_against_discrimination(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    method = DWL(model, DWLOptions(hidden=8, reversal_images=100), SIZES).eval()
    losses = {}
    for tau in (0.0, 0.3, 1.0):
        method.balance.fill_(tau)
        outputs = method(batch, at(50, "features_1"))
        losses[tau] = float(outputs["loss"].detach())
    with torch.no_grad():
        f_s, f_t = model.backbone(batch.source_images), model.backbone(batch.target_images)
        domain = float(domain_loss(method.discriminator.layers, f_s, f_t))
        p, p_1, p_2 = (
            softmax(head(f_t).numpy(), 1) for head in (model.head, method.first_auxiliary, method.second_auxiliary)
        )
        p_s = softmax(model(batch.source_images).numpy(), 1)
    disagreement = sum(np.abs(a - b).mean() for a, b in ((p_1, p_2), (p, p_1), (p, p_2)))
    truth = 0.9 * np.eye(3)[batch.source_labels.numpy()] + 0.1 / 3
    classification = -(truth * np.log(p_s)).sum(1).mean()
    assert float(outputs["domain"]) == pytest.approx(domain, rel=1e-5)
    assert float(outputs["discrepancy"]) == pytest.approx(disagreement, rel=1e-5)
    assert losses[0.0] == pytest.approx(classification + disagreement + domain, rel=1e-4)
    assert losses[0.3] == pytest.approx(classification + 0.7 * disagreement + domain, rel=1e-4)
    assert losses[1.0] == pytest.approx(classification + domain, rel=1e-4)
    # D moves on its loss whatever the balance; the features against it, in proportion to the balance
    ramp = 0.2 * (2 / (1 + np.exp(-5)) - 1)
    slopes = {}
    in_stem = model.backbone.get_parameter("stem.proj.weight")
    in_first_layer = method.get_parameter("discriminator.layers.0.weight")
    for tau in (0.0, 0.3, 1.0):
        method.zero_grad()
        method.balance.fill_(tau)
        outputs = method(batch, at(50, "features_1"))
        f_s, f_t = model.backbone(batch.source_images), model.backbone(batch.target_images)
        p, p_1, p_2 = (head(f_t).softmax(1) for head in (model.head, method.first_auxiliary, method.second_auxiliary))
        apart = sum((one - other).abs().sum() / one.numel() for one, other in ((p_1, p_2), (p, p_1), (p, p_2)))
        rest = cross_entropy(model.head(f_s), batch.source_labels.tolist(), 0.1) + (1 - tau) * apart
        (outputs["loss"] - rest).backward()
        slopes[tau] = (gradient(in_stem).clone(), gradient(in_first_layer).clone())
    method.zero_grad()
    f_s, f_t = model.backbone(batch.source_images), model.backbone(batch.target_images)
    domain_loss(method.discriminator.layers, f_s, f_t).backward()
    against = gradient(in_stem)
    for tau, (in_features, in_discriminator) in slopes.items():
        assert torch.allclose(in_features, -tau * ramp * against, atol=1e-6)
        assert torch.allclose(in_discriminator, gradient(in_first_layer), atol=1e-6)
