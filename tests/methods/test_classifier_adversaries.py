"""MCD, SWD, MDD, SymNets and SCDA: classifiers against features."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.special import entr, log_softmax, softmax

from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.losses import classification_loss
from pmtrans.losses.classifier_discrepancy import classifier_discrepancy
from pmtrans.losses.domain_halves import domain_loss
from pmtrans.methods import METHODS, Sizes
from pmtrans.methods.mcd import MCD, MCDOptions
from pmtrans.methods.mdd import MDD, MDDOptions
from pmtrans.methods.method import Method, Moment
from pmtrans.methods.scda import SCDA, SCDAOptions, same_class_pairs
from pmtrans.methods.symnets import SymNets, SymNetsOptions
from pmtrans.model import Model
from pmtrans.training.players import create_optimiser, freeze_others

SIZES = Sizes(classes=3, source_images=12, target_images=9)


def at(phase: str = "joint", step: int = 50) -> Moment:
    return Moment(step, 100, 10, phase)


def gradients(loss: torch.Tensor, module: torch.nn.Module) -> list[torch.Tensor]:
    parameters = list(module.parameters())
    found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]


def close(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.allclose(a, b, rtol=1e-3, atol=1e-6) for a, b in zip(one, other, strict=True))


def step(method: Method, batch: Batch, phase: str, rate: float = 1e-3) -> None:
    """One phase as the loop does it."""
    optimiser = create_optimiser(method, TrainConfig(learning_rate=rate, head_ratio=1.0))
    method(batch, at(phase))["loss"].backward()
    freeze_others(optimiser.param_groups, method.phases(at())[phase])
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


@pytest.mark.parametrize("name", ["mcd", "swd", "cgdm", "dwl"])
def test_classifiers_raise_the_discrepancy_and_features_lower_it(
    name: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    batch = batch_for(model, pairs=8)
    method = METHODS[name].create(model, METHODS[name].options.model_validate({"repeats": 2}), SIZES).eval()
    assert list(method.phases(at())) == ["source", "classifiers", "features_1", "features_2"]
    for _ in range(40):  # once the source is learnt, nothing but the discrepancy is left to move on
        step(method, batch, "source")

    def discrepancy() -> float:
        torch.manual_seed(0)
        return float(method(batch, at("features_1"))["discrepancy"])

    def weights() -> dict[str, torch.Tensor]:
        return {key: value.clone() for key, value in method.named_parameters()}

    for phase in ("classifiers", "features_1"):
        before, start = discrepancy(), weights()
        for _ in range(5):
            step(method, batch, phase, rate=1e-4)  # a first step of AdamW is as long as its rate: 1e-3 overshoots
        moved = {key for key, value in weights().items() if not value.equal(start[key])}
        movers = method.phases(at())[phase]
        assert movers is not None
        owned = {key for player in method.players(1.0) if player.name in movers for key, _ in player.parameters}
        assert moved <= owned
        if phase == "classifiers":
            assert discrepancy() > before
            assert not any(key.startswith("model.backbone") for key in moved)
        else:
            assert discrepancy() < before
            assert any(key.startswith("model.backbone") for key in moved)


def test_the_three_losses_of_mcd_are_those_of_the_paper(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    method = MCD(model, MCDOptions(label_smoothing=0.0, class_balance=0.01, weight=10.0), SIZES).eval()
    with torch.no_grad():
        f_s, f_t = model.backbone(batch.source_images), model.backbone(batch.target_images)
        z_s = [head(f_s).numpy() for head in (model.head, method.second_classifier)]
        p_t = [softmax(head(f_t).numpy(), 1) for head in (model.head, method.second_classifier)]
    labels = batch.source_labels.numpy()
    classification = sum(-log_softmax(z, 1)[range(4), labels].mean() for z in z_s)
    discrepancy = np.abs(p_t[0] - p_t[1]).mean()
    balance = 0.01 * sum(-np.log(p.mean(0)).mean() for p in p_t)
    losses = {phase: float(method(batch, at(phase))["loss"].detach()) for phase in method.phases(at())}
    assert losses["source"] == pytest.approx(classification + balance, rel=1e-4)
    assert losses["classifiers"] == pytest.approx(classification - 10 * discrepancy + balance, rel=1e-4)
    assert losses["features_4"] == pytest.approx(10 * discrepancy, rel=1e-4)


@pytest.mark.parametrize("name", ["mcd", "swd"])
def test_the_discrepancy_weighs_10_and_the_class_balance_a_hundredth_by_default(name: str) -> None:
    options = METHODS[name].options.model_validate({})
    assert (options.weight, options.class_balance) == (10, 0.01)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("mcd", "second_classifier"),
        ("swd", "second_classifier"),
        ("mdd", "adversary"),
        ("dwl", "first_auxiliary"),
        ("dwl", "second_auxiliary"),
    ],
)
def test_the_classifier_that_opposes_a_linear_one_is_not_linear(
    name: str, module: str, tiny: Callable[..., Model]
) -> None:
    """Two linear classifiers of the same features have one optimum on the source: nothing is left to disagree on."""
    torch.manual_seed(0)
    model = tiny()
    opponent = METHODS[name].create(model, METHODS[name].options(), SIZES).get_submodule(module).eval()
    one, other, none = torch.randn(1, 32), torch.randn(1, 32), torch.zeros(1, 32)

    def bend(classifier: torch.nn.Module) -> float:
        with torch.no_grad():
            return float((classifier(one + other) - classifier(one) - classifier(other) + classifier(none)).abs().max())

    assert bend(model.head) == pytest.approx(0, abs=1e-6)
    assert bend(opponent) > 1e-3


def test_the_margin_of_mdd_is_4_by_default() -> None:
    assert MDDOptions().margin == 4


def test_mdd_trains_the_adversary_for_and_the_features_against_the_disparity(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    method = MDD(model, MDDOptions(margin=2.0, reversal=0.1, reversal_images=100), SIZES).eval()
    f_s, f_t = model.backbone(batch.source_images), model.backbone(batch.target_images)
    y_s, y_t = model.head(f_s).argmax(1), model.head(f_t).argmax(1)
    a_s, a_t = method.adversary(f_s).log_softmax(1), method.adversary(f_t).softmax(1)
    disparity = torch.stack(
        [-2 * a_s[i, y_s[i]] / 4 for i in range(4)] + [-torch.log(1 - a_t[i, y_t[i]]) / 4 for i in range(4)]
    ).sum()
    classification = classification_loss(model.head(f_s), batch.source_labels, 0.1)
    outputs = method(batch, at())
    assert float(outputs["disparity"]) == pytest.approx(float(disparity.detach()), rel=1e-4)
    assert close(gradients(outputs["loss"], method.adversary), gradients(disparity, method.adversary))
    coefficient = 0.1 * (2 / (1 + math.exp(-5)) - 1)
    plain = gradients(classification, model.backbone.trunk)
    reverse = gradients(disparity, model.backbone.trunk)
    expected = [c - coefficient * d for c, d in zip(plain, reverse, strict=True)]
    assert close(gradients(outputs["loss"], model.backbone.trunk), expected)
    assert close(gradients(outputs["loss"], model.head), gradients(classification, model.head))


def symnets_losses(method: SymNets, batch: Batch) -> dict[str, torch.Tensor]:
    """Each loss of the paper image by image, from the probabilities of C^s and C^t side by side."""
    losses: dict[str, Any] = dict.fromkeys(("task", "domain", "category", "confusion", "entropy"), 0.0)
    model = method.model
    for image, label in zip(batch.source_images, batch.source_labels, strict=True):
        f = model.backbone(image[None])
        z_s, z_t = method.source_classifier(f)[0], model.head(f)[0]
        p = torch.cat([z_s, z_t]).softmax(0)
        losses["task"] -= (z_s.log_softmax(0)[label] + z_t.log_softmax(0)[label]) / 4
        losses["domain"] -= p[:3].sum().log() / 4
        losses["category"] -= (p[label].log() + p[label + 3].log()) / 2 / 4
    for image in batch.target_images:
        f = model.backbone(image[None])
        p = torch.cat([method.source_classifier(f)[0], model.head(f)[0]]).softmax(0)
        losses["domain"] -= p[3:].sum().log() / 4
        losses["confusion"] -= (p[:3].sum().log() + p[3:].sum().log()) / 2 / 4
        losses["entropy"] -= ((p[:3] + p[3:]) * (p[:3] + p[3:]).log()).sum() / 4
    return losses


def test_symnets_moves_each_side_on_its_own_loss(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    method = SymNets(model, SymNetsOptions(label_smoothing=0.0), SIZES).eval()
    expected = symnets_losses(method, batch)
    outputs = method(batch, at())
    assert float(outputs["classification"]) == pytest.approx(float(expected["task"].detach()), rel=1e-4)
    assert float(outputs["domain"]) == pytest.approx(float(expected["domain"].detach()), rel=1e-4)
    assert float(outputs["category_confusion"]) == pytest.approx(float(expected["category"].detach()), rel=1e-4)
    together = expected["confusion"] + expected["entropy"]
    assert float(outputs["domain_confusion"]) == pytest.approx(float(together.detach()), rel=1e-4)
    ramp = 2 / (1 + math.exp(-5)) - 1
    for_classifiers = expected["task"] + expected["domain"]
    for_features = expected["category"] + ramp * together
    for head in (model.head, method.source_classifier):
        assert close(gradients(outputs["loss"], head), gradients(for_classifiers, head))
    assert close(gradients(outputs["loss"], model.backbone.trunk), gradients(for_features, model.backbone.trunk))


def test_symnets_tells_the_domains_apart_when_each_is_sure_of_its_half() -> None:
    source, target = torch.tensor([[30.0, 0, 0, 0]]), torch.tensor([[0.0, 0, 0, 30]])
    assert float(domain_loss(source, target)) == pytest.approx(0, abs=1e-5)
    assert float(domain_loss(target, source)) > 50


def test_scda_pairs_images_of_a_class_and_only_confident_targets() -> None:
    labels = torch.tensor([0, 1, 0, 2])
    target = torch.log(torch.tensor([[0.9, 0.05, 0.05], [0.7, 0.2, 0.1], [0.1, 0.05, 0.85], [0.0501, 0.9, 0.0499]]))
    within, across = same_class_pairs(labels, target, 0.8)
    assert {(i, j) for i, j in within.nonzero().tolist()} == {(0, 2), (2, 0)}
    assert {(i, j) for i, j in across.nonzero().tolist()} == {(0, 0), (2, 0), (3, 2), (1, 3)}


def test_in_scda_the_classifier_ascends_on_the_divergence_and_the_features_descend(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    options = SCDAOptions(confidence=0.0, information=0.2, weight=3.0)
    method = SCDA(model, options, SIZES).eval()
    f_s, f_t = model.backbone(batch.source_images), model.backbone(batch.target_images)
    z_s, z_t = model.head(f_s), model.head(f_t)
    outputs = method(batch, at())

    within = [(i, j) for i in range(4) for j in range(4) if i != j and i % 3 == j % 3]
    across = [(i, j) for i in range(4) for j in range(4) if i % 3 == int(z_t[j].argmax())]
    divergence = 0.0
    for pairs, other in ((within, z_s), (across, z_t)):
        values = [
            jensenshannon(*(softmax(z.detach().double().numpy() / 10) for z in (z_s[i], other[j]))) for i, j in pairs
        ]
        divergence += 100 * np.mean(np.square(values)) if values else 0.0
    p = softmax(z_t.detach().numpy(), 1)
    information = entr(p.mean(0)).sum() - entr(p).sum(1).mean()
    classification = classification_loss(z_s, batch.source_labels, 0.1)
    assert float(outputs["divergence"]) == pytest.approx(divergence, rel=0.02)
    assert float(outputs["information"]) == pytest.approx(information, abs=1e-5)
    expected = float(classification.detach()) - 3 * 0.5 * divergence - 0.2 * information
    assert float(outputs["loss"].detach()) == pytest.approx(expected, rel=1e-3)

    off = SCDA(model, options.model_copy(update={"weight": 0.0}), SIZES).eval()
    game = SCDA(model, options.model_copy(update={"weight": 1.0}), SIZES).eval()
    rate, at_start = 1.0, float(outputs["divergence"])
    for module, direction in ((model.head, 1), (model.backbone.stem, -1)):
        with_game, without = (gradients(which(batch, at())["loss"], module) for which in (game, off))
        with torch.no_grad():
            for parameter, a, b in zip(module.parameters(), with_game, without, strict=True):
                parameter.sub_(rate * (a - b))  # a step of descent on the game alone
        after = float(game(batch, at())["divergence"])
        assert (after - at_start) * direction > 0
        at_start = after


def test_the_discrepancy_is_symmetric() -> None:
    one, other = torch.randn(4, 3), torch.randn(4, 3)
    assert torch.equal(classifier_discrepancy(one, other), classifier_discrepancy(other, one))
