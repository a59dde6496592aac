"""The same tensors through pytorch-adapt, skada and POT: losses, whole steps of DANN and MCD, validators."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import ot
import pytest
import torch
from pytorch_adapt import hooks, layers, validators, weighters
from pytorch_adapt.validators.deep_embedded_validator import get_dev_risk
from skada.deep._adversarial import DANNLoss, MDDLoss, ModifiedCrossEntropyLoss
from torch import Tensor, nn

from pmtrans.data.batch import Batch
from pmtrans.losses.class_confusion import minimum_class_confusion
from pmtrans.losses.classifier_discrepancy import classifier_discrepancy
from pmtrans.losses.domain_adversarial import domain_adversarial_loss
from pmtrans.losses.domain_confusion import domain_confusion
from pmtrans.losses.domain_halves import domain_loss
from pmtrans.losses.margin_disparity import margin_disparity
from pmtrans.losses.nuclear_norm import batch_nuclear_norm_loss
from pmtrans.losses.sliced_wasserstein import projected_distance, sliced_wasserstein
from pmtrans.losses.symmetric_entropy import symmetric_entropy
from pmtrans.methods import Sizes
from pmtrans.methods.dann import DANN, DANNOptions
from pmtrans.methods.mcd import MCD, MCDOptions
from pmtrans.methods.method import Method, Moment
from pmtrans.model import Model
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.validators.dev import controlled_risk
from pmtrans.selection.validators.entropy import entropy
from pmtrans.selection.validators.information_maximisation import information_maximisation
from pmtrans.selection.validators.snd import snd
from pmtrans.training.players import freeze_others

SIZES = Sizes(classes=3, source_images=12, target_images=9)
MOMENT = Moment(step=50, steps=100, steps_per_epoch=10)
RATE = 0.1


def logits(*shape: int, seed: int = 0) -> Tensor:
    return (2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).requires_grad_()


def assert_same_value_and_gradients(ours: Tensor, theirs: Tensor, inputs: Iterable[Tensor]) -> None:
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), rel=1e-5, abs=1e-7)
    for one in inputs:
        mine, other = (torch.autograd.grad(loss, one, retain_graph=True)[0] for loss in (ours, theirs))
        assert torch.allclose(mine, other, rtol=1e-4, atol=1e-7)


def test_the_discrepancy_of_mcd_is_that_of_pytorch_adapt() -> None:
    first, second = logits(6, 4), logits(6, 4, seed=1)
    theirs = layers.MCDLoss()(first, second)
    assert_same_value_and_gradients(classifier_discrepancy(first, second), theirs, (first, second))


def test_the_nuclear_norm_is_that_of_pytorch_adapt_where_images_are_not_more_than_classes() -> None:
    """Theirs divides by the images, ours (as the authors' code) by the lesser number."""
    few, many = logits(4, 6), logits(9, 6, seed=1)
    assert_same_value_and_gradients(batch_nuclear_norm_loss(few), layers.BNMLoss()(few), [few])
    assert_same_value_and_gradients(batch_nuclear_norm_loss(many) * 6 / 9, layers.BNMLoss()(many), [many])


def test_class_confusion_is_that_of_pytorch_adapt() -> None:
    z = logits(8, 5)
    assert_same_value_and_gradients(minimum_class_confusion(z, 2.5), layers.MCCLoss(T=2.5)(z), [z])


def test_the_domain_loss_is_that_of_skada() -> None:
    """Theirs has probabilities of the target, and adds the two domains up."""
    d_s, d_t = logits(6), logits(6, seed=1)
    theirs = DANNLoss()((-d_s).sigmoid(), (-d_t).sigmoid())
    assert_same_value_and_gradients(2 * domain_adversarial_loss(d_s, d_t), theirs, (d_s, d_t))


def test_margin_disparity_is_that_of_skada() -> None:
    """Without its smoothing, and with one class on the target: it takes every image's probability of every label."""
    z_s, a_s, a_t = (logits(6, 4, seed=seed) for seed in range(3))
    z_t = logits(6, 4, seed=3).detach() + torch.tensor([0.0, 0.0, 50.0, 0.0])
    theirs = MDDLoss(gamma=3.0)
    theirs.disc_criterion_t = ModifiedCrossEntropyLoss(smoothing=0.0)
    ours = margin_disparity(z_s, z_t, a_s, a_t, margin=3.0)
    assert_same_value_and_gradients(ours, theirs(z_s, z_t, a_s, a_t), (a_s, a_t))


def test_the_terms_of_symnets_are_those_of_pytorch_adapt() -> None:
    source_s, source_t, target_s, target_t = halves = [logits(5, 4, seed=seed) for seed in range(4)]
    source, target = torch.cat([source_s, source_t], 1), torch.cat([target_s, target_t], 1)
    in_first, in_second = layers.SymNetsDomainLoss(0), layers.SymNetsDomainLoss(1)
    theirs = in_first(source_s, source_t) + in_second(target_s, target_t)
    assert_same_value_and_gradients(domain_loss(source, target), theirs, halves)
    theirs = (in_first(target_s, target_t) + in_second(target_s, target_t)) / 2
    assert_same_value_and_gradients(domain_confusion(target), theirs, halves[2:])
    theirs = layers.SymNetsEntropyLoss()(target_s, target_t)
    assert_same_value_and_gradients(symmetric_entropy(target), theirs, halves[2:])


def test_sliced_wasserstein_is_that_of_pot_and_of_pytorch_adapt() -> None:
    first, second = logits(7, 4), logits(7, 4, seed=1)
    directions = nn.functional.normalize(logits(4, 9, seed=2).detach(), dim=0)
    theirs = ot.sliced_wasserstein_distance(first, second, projections=directions) ** 2
    assert_same_value_and_gradients(projected_distance(first, second, directions), theirs, (first, second))
    torch.manual_seed(3)
    ours = sliced_wasserstein(first, second, 128)
    torch.manual_seed(3)
    assert_same_value_and_gradients(ours, layers.SlicedWasserstein()(first, second), (first, second))


def test_a_step_of_dann_moves_every_weight_as_that_of_pytorch_adapt(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    method = DANN(tiny(), DANNOptions(hidden=8, label_smoothing=0.0, reversal_images=100), SIZES).eval()
    theirs = copy.deepcopy(method)
    batch = batch_for(method.model)
    step(method, batch)
    players = {"G": theirs.model.backbone, "C": theirs.model.head, "D": theirs.discriminator}
    hooks.DANNHook(
        [torch.optim.SGD(theirs.parameters(), RATE)],
        weighter=weighters.SumWeighter(weights={"src_domain_loss": 0.5, "target_domain_loss": 0.5}),
        gradient_reversal_weight=2 / (1 + math.exp(-5)) - 1,
    )({**players, **their_batch(batch)})
    assert_same_weights(method, theirs)


def test_the_three_steps_of_mcd_move_every_weight_as_those_of_pytorch_adapt(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    method = MCD(tiny(), MCDOptions(repeats=3, label_smoothing=0.0, weight=1.0, class_balance=0.0), SIZES).eval()
    theirs = copy.deepcopy(method)
    batch = batch_for(method.model)
    step(method, batch)
    classifiers = layers.MultipleModels(theirs.model.head, theirs.second_classifier)
    hooks.MCDHook(
        g_opts=[torch.optim.SGD(theirs.model.backbone.parameters(), RATE)],
        c_opts=[torch.optim.SGD(classifiers.parameters(), RATE)],
        x_weighter=weighters.SumWeighter(),
        y_weighter=weighters.SumWeighter(),
        z_weighter=weighters.SumWeighter(),
        repeat=3,
    )({"G": theirs.model.backbone, "C": classifiers, **their_batch(batch)})
    assert_same_weights(method, theirs)


def step(method: Method, batch: Batch) -> None:
    """All phases as the loop has them, with SGD."""
    groups = [{"player": p.name, "params": [value for _, value in p.parameters]} for p in method.players(1.0)]
    optimiser = torch.optim.SGD(groups, RATE)
    for phase, movers in method.phases(MOMENT).items():
        optimiser.zero_grad()
        method(batch, Moment(MOMENT.step, MOMENT.steps, MOMENT.steps_per_epoch, phase))["loss"].backward()
        freeze_others(optimiser.param_groups, movers)
        optimiser.step()


def their_batch(batch: Batch) -> dict[str, Any]:
    size = len(batch.source_labels)
    return {
        "src_imgs": batch.source_images,
        "src_labels": batch.source_labels,
        "src_domain": torch.ones(size),  # ours has the source at 1 as well
        "target_imgs": batch.target_images,
        "target_domain": torch.zeros(size),
    }


def assert_same_weights(ours: Method, theirs: Method) -> None:
    others = dict(theirs.named_parameters())
    for name, value in ours.named_parameters():
        assert torch.allclose(value, others[name], rtol=1e-4, atol=1e-6), name


def test_validators_are_those_of_pytorch_adapt() -> None:
    target, labels = logits(40, 5).detach(), torch.arange(12) % 5
    evidence = Evidence(torch.randn(12, 3), logits(12, 5, seed=1).detach(), labels, torch.randn(40, 3), target)
    theirs = {"logits": target, "preds": target.softmax(1)}
    assert entropy(evidence) == pytest.approx(validators.EntropyValidator()(target_train=theirs), rel=1e-5)
    assert information_maximisation(evidence) == pytest.approx(validators.IMValidator()(target_train=theirs), rel=1e-5)
    assert snd(evidence) == pytest.approx(validators.SNDValidator()(target_train=theirs), rel=1e-4)


def test_the_risk_of_dev_is_that_of_pytorch_adapt() -> None:
    rng = np.random.default_rng(0)
    weights, losses = rng.exponential(size=20), rng.exponential(size=20)
    theirs = get_dev_risk(torch.tensor(weights)[:, None], torch.tensor(losses)[:, None], None)
    assert controlled_risk(weights, losses) == pytest.approx(float(theirs), rel=1e-9)
