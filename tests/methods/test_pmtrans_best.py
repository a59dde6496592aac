"""What the preset ``best`` adds to the paper, part by part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.methods import Sizes
from pmtrans.methods.method import Context, Moment, SecondView, SourcePass, TargetPass
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.methods.pmtrans_options import BEST, PMTransOptions
from pmtrans.model import Model
from pmtrans.pseudo_labels import kmeans_pseudo_labels, label_confidence, propagated_probabilities
from pmtrans.training.players import create_optimiser

MOMENT = Moment(step=5, steps=10, steps_per_epoch=5)
SIZES = Sizes(classes=3, source_images=12, target_images=9, steps_per_epoch=40)


def context() -> Context:
    torch.manual_seed(1)
    source = SourcePass(torch.randn(12, 32), torch.randn(12, 3), torch.arange(3).repeat(4))
    target = TargetPass(torch.randn(9, 32), torch.randn(9, 3))
    return Context(lambda: target, lambda: source)


def test_it_is_the_default_and_each_part_can_be_taken_away() -> None:
    best = PMTransOptions()
    assert best.preset == "best"
    assert {key: getattr(best, key) for key in BEST} == BEST
    paper = PMTransOptions(preset="paper")
    for key in BEST:
        assert getattr(paper, key) != BEST[key]
        without = PMTransOptions(**{key: getattr(paper, key)})
        assert [other for other in BEST if getattr(without, other) != BEST[other]] == [key]


def test_written_options_read_back_the_same() -> None:
    for given in ({}, {"pseudo_labels": "neighbours"}, {"beta_learning_rate": 1e-2}, {"pseudo_labels": "kmeans"}):
        options = PMTransOptions(**given)
        assert PMTransOptions(**options.model_dump(mode="json")) == options


def test_what_is_given_goes_before_the_preset() -> None:
    assert PMTransOptions(beta_learning_rate=1e-2).beta_pace is None
    with pytest.raises(ValidationError, match="neighbours"):
        PMTransOptions(pseudo_labels="neighbours", confidence=True)


@pytest.mark.parametrize("start", [(1.0, 1.0), (2.0, 0.5)])
def test_the_mean_ratio_moves_by_the_pace_in_an_epoch_at_most(
    start: tuple[float, float], tiny: Callable[..., Model]
) -> None:
    method = PMTrans(tiny(), PMTransOptions(beta_pace=0.05, beta_start=start), SIZES)
    optimiser = create_optimiser(method, TrainConfig(schedule="constant", warmup_steps=0))

    def mean() -> float:
        b, g = method.mixing.beta.concentrations().tolist()
        return float(b / (b + g))

    before = mean()
    for _ in range(SIZES.steps_per_epoch):
        method.mixing.beta.raw.grad = torch.tensor([1.0, -1.0])  # always the same way: the furthest that Adam goes
        optimiser.step()
    assert mean() - before == pytest.approx(0.05, rel=0.15)


def test_labels_are_propagated_from_an_aligned_head(tiny: Callable[..., Model]) -> None:
    model = tiny()
    before = model.head.get_parameter("weight").detach().clone()
    method, given = (
        PMTrans(model, PMTransOptions(pseudo_labels="propagation", confidence=True, align_head="always"), SIZES),
        context(),
    )
    method.before_step(Moment(0, 40, 40), given)
    assert not torch.equal(before, model.head.get_parameter("weight"))
    features = given.target_pass().features_MF
    with torch.no_grad():
        confidence, labels = propagated_probabilities(features, model.head(features).softmax(1)).max(1)
    assert torch.equal(method.pseudo_labels_M, labels)
    assert method.confidence_M is not None
    assert torch.allclose(method.confidence_M, confidence)
    method.before_step(Moment(40, 80, 40), given)  # later labellings take the model's own predictions
    later = propagated_probabilities(features, given.target_pass().logits_MK.softmax(1)).argmax(1)
    assert torch.equal(method.pseudo_labels_M, later)


def three_clusters(wrong: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(the clusters of nine images, what a classifier calls them that is wrong on some, their features)"""
    torch.manual_seed(0)
    clusters = torch.arange(3).repeat(3)
    calls = clusters.clone()
    calls[:wrong] = (calls[:wrong] + 1) % 3
    return clusters, calls, 10 * torch.eye(32)[clusters] + 0.01 * torch.randn(9, 32)


@pytest.mark.parametrize(("wrong", "moves"), [(1, False), (3, True)])
def test_only_a_classifier_that_lags_behind_its_clusters_is_aligned(
    wrong: int, moves: bool, tiny: Callable[..., Model]
) -> None:
    """Of nine images in three tight clusters, the classifier calls one or three otherwise than their cluster."""
    _, calls, features = three_clusters(wrong)
    target = TargetPass(features, 3 * F.one_hot(calls, 3).float())
    model = tiny()
    before = model.head.get_parameter("weight").detach().clone()
    source = SourcePass(torch.randn(12, 32), torch.randn(12, 3), torch.arange(3).repeat(4))
    PMTrans(model, PMTransOptions(), SIZES).before_step(Moment(0, 40, 40), Context(lambda: target, lambda: source))
    assert torch.equal(before, model.head.get_parameter("weight")) != moves


@pytest.mark.parametrize("refits", [True, False])
def test_the_classifier_ends_with_the_labels_of_near_images(refits: bool, tiny: Callable[..., Model]) -> None:
    """Nine images in three tight clusters; the classifier is wrong about one of each three: its neighbours are not."""
    torch.manual_seed(0)
    clusters = torch.arange(3).repeat_interleave(3)
    calls = clusters.clone()
    calls[::3] = (calls[::3] + 1) % 3
    features = 10 * torch.eye(32)[clusters] + 0.3 * torch.randn(9, 32)
    logits = 2 * F.one_hot(calls, 3).float()
    source = SourcePass(torch.randn(12, 32), torch.randn(12, 3), torch.arange(3).repeat(4))
    model = tiny()
    before = model.head(features).argmax(1)
    method = PMTrans(model, PMTransOptions(refit_head=refits), SIZES)
    given = Context(lambda: TargetPass(features, logits), source_sample=lambda: source)
    assert method.settle_head(given) == refits
    assert torch.equal(model.head(features).argmax(1), clusters if refits else before)
    assert not torch.equal(before, clusters)


@pytest.mark.parametrize("second_view", [True, False])
def test_a_class_that_training_lost_is_found_in_the_untrained_features(
    second_view: bool, tiny: Callable[..., Model]
) -> None:
    """The model's features hold classes 1 and 2 in one place; those of the untrained backbone keep them apart."""
    torch.manual_seed(0)
    truth = torch.arange(3).repeat(3)
    features = 10 * torch.eye(32)[truth.clamp_max(1)] + 0.01 * torch.randn(9, 32)
    untrained = 10 * torch.eye(32)[truth] + 0.01 * torch.randn(9, 32)
    logits = F.one_hot(truth, 3).float()
    logits[2] = logits[5] = torch.tensor([0.0, 1.0, 0.9])  # two of the three images of class 2 are called 1
    options = PMTransOptions(second_view=second_view, align_head="never")
    method = PMTrans(tiny(), options, SIZES)
    source = SourcePass(torch.randn(12, 32), torch.randn(12, 3), torch.arange(3).repeat(4))
    given = Context(
        lambda: TargetPass(features, logits), lambda: source, lambda: source, lambda _: SecondView(untrained, None)
    )
    method.before_step(Moment(0, 40, 40), given)
    assert torch.equal(method.pseudo_labels_M, truth) == second_view
    if second_view:
        method.settle_head(given)  # labels by both views, a classifier on the features that it has
        assert torch.equal(method.model.head(features).argmax(1)[truth == 0], truth[truth == 0])


def test_confidence_of_clusters_where_labels_are_those_of_kmeans(tiny: Callable[..., Model]) -> None:
    method, given = (
        PMTrans(tiny(), PMTransOptions(pseudo_labels="kmeans", align_head="never", confidence=True), SIZES),
        context(),
    )
    method.before_step(Moment(0, 40, 40), given)
    target = given.target_pass()
    labels = kmeans_pseudo_labels(target.features_MF, logits_MK=target.logits_MK)
    assert torch.equal(method.pseudo_labels_M, labels)
    assert method.confidence_M is not None
    assert torch.equal(method.confidence_M, label_confidence(target.features_MF, labels, 3))


def test_the_loss_is_that_of_the_paper_with_weighted_labels_and_information(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    batch = batch_for(model)

    def outputs(method: PMTrans) -> dict[str, Any]:
        torch.manual_seed(7)
        found: dict[str, Any] = method(batch, MOMENT)
        return found

    best = PMTrans(model, PMTransOptions(information=0.5, confidence=True), SIZES)
    assert best.confidence_M is not None
    best.confidence_M.copy_(torch.linspace(0.1, 0.9, 9))
    best.pseudo_labels_M.copy_(torch.arange(9) % 3)
    paper = PMTrans(model, PMTransOptions(preset="paper", alpha="fixed"), SIZES)
    paper.pseudo_labels_M.copy_(torch.arange(9) % 3)
    with_parts, plain = outputs(best), outputs(paper)

    with torch.no_grad():
        p = model(batch.target_images).softmax(1)
        mean = p.mean(0)
        information = float(-(p * p.log()).sum(1).mean() + (mean * mean.log()).sum())
    assert float(with_parts["information"]) == pytest.approx(information, abs=1e-5)
    assert float(with_parts["label_space"]) < float(plain["label_space"])
    expected = (
        with_parts["classification"] + with_parts["feature_space"] + with_parts["label_space"] + 0.5 * information
    )
    assert float(with_parts["loss"].detach()) == pytest.approx(float(expected), rel=1e-5)
    assert float(with_parts["feature_space"]) == pytest.approx(float(plain["feature_space"]), rel=1e-6)


def test_weight_of_the_feature_loss(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    model = tiny().eval()
    values = []
    for weight in (1.0, 3.0):
        torch.manual_seed(7)
        method = PMTrans(model, PMTransOptions(feature_weight=weight), SIZES)
        values.append(float(method(batch_for(model), MOMENT)["feature_space"]))
    assert values[1] == pytest.approx(3 * values[0], rel=1e-5)


def test_both_target_losses_follow_their_formulas(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    outputs = PMTrans(model, PMTransOptions(nuclear_norm=2.0, mcc=0.0), SIZES)(batch, MOMENT)
    with torch.no_grad():
        singular = torch.linalg.svd(F.softmax(model(batch.target_images), 1)).S
    assert float(outputs["nuclear_norm"]) == pytest.approx(-float(singular.mean()), rel=1e-5)


@pytest.mark.parametrize("has_classifier", [True, False])
def test_labels_start_from_the_mean_of_two_classifiers_where_the_second_view_has_one(
    has_classifier: bool, tiny: Callable[..., Model]
) -> None:
    """The model calls every image of class 2 a 1; the second view's classifier knows better, but errs on one image."""
    torch.manual_seed(0)
    truth = torch.arange(3).repeat(3)
    features = 10 * torch.eye(32)[truth] + 0.01 * torch.randn(9, 32)
    nearly = truth.clone()
    nearly[0] = 1
    model_says, other_says = (3 * F.one_hot(calls, 3).float() for calls in (truth.clamp_max(1), nearly))
    second = SecondView(features, 2 * other_says if has_classifier else None)
    source = SourcePass(torch.randn(12, 32), torch.randn(12, 3), torch.arange(3).repeat(4))
    given = Context(lambda: TargetPass(features, model_says), lambda: source, lambda: source, lambda _: second)
    method = PMTrans(tiny(), PMTransOptions(align_head="never"), SIZES)
    method.before_step(Moment(0, 40, 40), given)
    assert method.agreement is not None
    method.agreement.fill_(0.5)  # not settled
    method.before_step(Moment(40, 80, 40), given)
    assert torch.equal(method.pseudo_labels_M, truth) == has_classifier


@pytest.mark.parametrize(("wrong", "is_settled"), [(0, True), (1, False)])
def test_a_classifier_that_begins_in_agreement_with_its_clusters_is_left_as_it_trains(
    wrong: int, is_settled: bool, tiny: Callable[..., Model]
) -> None:
    """Of nine images in three clusters, one that is called otherwise is 11 %: more than the 7 % that may be."""
    clusters, calls, features = three_clusters(wrong)
    untrained = 10 * torch.eye(32)[clusters.roll(1)]  # another grouping
    source = SourcePass(torch.randn(12, 32), torch.randn(12, 3), torch.arange(3).repeat(4))
    logits = 3 * F.one_hot(calls, 3).float()
    given = Context(
        lambda: TargetPass(features, logits), lambda: source, lambda: source, lambda _: SecondView(untrained, None)
    )
    method = PMTrans(tiny(), PMTransOptions(align_head="never"), SIZES)
    method.before_step(Moment(0, 40, 40), given)
    assert method.agreement is not None
    assert float(method.agreement) == pytest.approx(1 - wrong / 9)
    assert method.settle_head(given) != is_settled
    if is_settled:
        assert torch.equal(method.pseudo_labels_M, clusters)  # the untrained features had no say
    again = PMTrans(tiny(), PMTransOptions(align_head="never"), SIZES)
    again.load_state_dict(method.state_dict())
    assert again.settle_head(given) != is_settled  # also in a run that was interrupted
    assert PMTrans(tiny(), PMTransOptions(preset="paper"), SIZES).agreement is None
