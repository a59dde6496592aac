"""BNM, CAN, PCT, CKB, TSA and ILA-DA: how the losses are put together, when they count, what is remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from by_hand import cross_entropy, multi_sample_contrastive
from gradients import gradient
from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.losses import classification_loss
from pmtrans.losses.contrastive_domain_discrepancy import contrastive_domain_discrepancy
from pmtrans.losses.kernel_bures import conditional_kernel_bures_loss
from pmtrans.losses.maximum_mean_discrepancy import maximum_mean_discrepancy
from pmtrans.losses.nuclear_norm import batch_nuclear_norm_loss
from pmtrans.losses.prototype_transport import prototype_transport_loss
from pmtrans.losses.semantic_augmentation import augmented_logits
from pmtrans.methods import METHODS, Method, Sizes
from pmtrans.methods.ila import ILAOptions
from pmtrans.methods.method import Context, Moment, SourcePass, TargetPass
from pmtrans.model import Model
from pmtrans.training.players import create_optimiser

SIZES = Sizes(classes=3, source_images=12, target_images=9)
MIDDLE = Moment(step=50, steps=100, steps_per_epoch=10)


def create(name: str, model: Model, **switches: Any) -> Any:
    entry = METHODS[name]
    return entry.create(model, entry.options(**switches), SIZES)


def seen(model: Model, batch: Batch) -> tuple[torch.Tensor, ...]:
    """Features and logits of source and target, each domain in a pass of its own."""
    with torch.no_grad():
        return *model.features_and_logits(batch.source_images), *model.features_and_logits(batch.target_images)


def entropy_of(p: torch.Tensor) -> float:
    return float(-(p * p.log()).sum())


def total(method: Method, batch: Batch, moment: Moment = MIDDLE) -> float:
    return float(method(batch, moment)["loss"].detach())


def test_bnm_is_cross_entropy_and_the_nuclear_norm(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    _, z_s, _, z_t = seen(model, batch)
    expected = classification_loss(z_s, batch.source_labels, 0.1) + 0.5 * batch_nuclear_norm_loss(z_t)
    assert total(create("bnm", model, weight=0.5), batch) == pytest.approx(float(expected), rel=1e-4)


def test_can_adds_the_discrepancy_of_features_and_predictions_over_kept_labels(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    batch, method = batch_for(model), create("can", model, weight=0.7)
    method.pseudo_labels_M.copy_(torch.tensor([0, 1, 2, -1, 0, 1, 2, -1, 0]))
    f_s, z_s, f_t, z_t = seen(model, batch)
    labels = batch.source_labels, method.pseudo_labels_M[batch.target_index]
    expected = classification_loss(z_s, batch.source_labels, 0.1)
    for pair in ((f_s, f_t), (z_s.softmax(1), z_t.softmax(1))):
        expected += 0.7 * contrastive_domain_discrepancy(*pair, *labels, 3)
    assert total(method, batch) == pytest.approx(float(expected), rel=1e-4)


def test_can_clusters_from_source_centres_and_pairs_images_of_one_class(tiny: Callable[..., Model]) -> None:
    method = create("can", tiny(), images_per_class=2, distance=0.2, smallest_class=2)
    directions = torch.eye(3, 32)
    labels_N = torch.arange(12) % 3
    labels_M = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 2])  # class 2 is too small to be kept
    torch.manual_seed(0)
    features_MF = directions[labels_M] + 0.02 * torch.randn(9, 32)
    features_MF[3] = -directions[0] - directions[1] - directions[2]  # far from every centre
    asked = []

    def source_pass() -> SourcePass:
        asked.append("source")
        return SourcePass(directions[labels_N], torch.zeros(12, 3), labels_N)

    context = Context(lambda: TargetPass(features_MF, torch.zeros(9, 3)), source_pass)
    pairs = method.choose_pairs(Moment(10, 100, 10), context)
    assert method.pseudo_labels_M.tolist() == [0, 0, 0, -1, 1, 1, 1, 1, -1]
    assert pairs.shape == (12, 2)
    for source, target in pairs.tolist():
        if labels_N[source] != 2:
            assert method.pseudo_labels_M[target] == labels_N[source]
    assert torch.equal(method.choose_pairs(Moment(13, 100, 10), context), pairs)  # given back, not chosen again
    assert asked == ["source"]


def test_pct_transports_to_the_classifiers_weights_and_learns_the_proportions(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    _, z_s, f_t, _ = seen(model, batch)
    weight, even = model.head.get_parameter("weight").detach(), torch.full((3,), 1 / 3)
    classification = float(classification_loss(z_s, batch.source_labels, 0.1))
    fixed = create("pct", model, weight=2.0)
    expected = classification + 2 * float(prototype_transport_loss(weight, f_t, even))
    assert total(fixed, batch) == pytest.approx(expected, rel=1e-4)
    assert torch.equal(fixed.prior_K, even)

    learning = create("pct", model, prior_rate=0.25)
    posterior = (f_t @ weight.T).softmax(1).mean(0)
    prior = 0.75 / 3 + 0.25 * posterior
    expected = classification + float(prototype_transport_loss(weight, f_t, prior))
    assert total(learning, batch) == pytest.approx(expected, rel=1e-4)
    assert torch.allclose(learning.prior_K, prior, atol=1e-6)


def test_pct_lets_the_source_alone_move_the_prototypes(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    gradients = []
    for weight in (0.0, 5.0):
        model.zero_grad()
        create("pct", model, weight=weight)(batch_for(model), MIDDLE)["loss"].backward()
        gradients.append(
            tuple(gradient(model.get_parameter(name)).clone() for name in ("head.weight", "backbone.trunk.norm.weight"))
        )
    assert torch.allclose(gradients[0][0], gradients[1][0], atol=1e-6)
    assert not torch.allclose(gradients[0][1], gradients[1][1], atol=1e-3)


def test_ckb_begins_with_the_distance_and_adds_the_entropy_later(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    method = create("ckb", model, weight=0.5, label_mmd=0.3, entropy_start=0.3)
    f_s, z_s, f_t, z_t = seen(model, batch)
    labels_s, labels_t = torch.eye(3)[batch.source_labels], z_t.softmax(1)
    expected = float(classification_loss(z_s, batch.source_labels, 0.1))
    expected += 0.5 * float(conditional_kernel_bures_loss(f_s, f_t, labels_s, labels_t))
    expected += 0.3 * float(maximum_mean_discrepancy(labels_s, labels_t, count=1))
    assert total(method, batch, Moment(0, 100, 10)) == pytest.approx(expected, rel=1e-4)
    expected += 0.05 * sum(entropy_of(p) for p in labels_t) / 4
    assert total(method, batch) == pytest.approx(expected, rel=1e-4)


def test_the_distance_of_ckb_moves_the_features_and_not_the_labels_that_it_is_given(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    with torch.no_grad():
        model.head.get_parameter("weight").mul_(50)  # predictions that a gradient could move
    batch = batch_for(model)
    gradients = []
    for weight in (0.0, 5.0):
        model.zero_grad()
        create("ckb", model, weight=weight, entropy_weight=0.0)(batch, MIDDLE)["loss"].backward()
        gradients.append(
            [gradient(model.get_parameter(name)).clone() for name in ("head.weight", "backbone.stem.proj.weight")]
        )
    (head, features), (head_with, features_with) = gradients
    assert torch.equal(head, head_with)
    assert not torch.allclose(features, features_with)


def test_tsa_augments_with_what_it_remembers_of_the_target(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    method = create("tsa", model)
    first, second = batch_for(model, seed=1), batch_for(model, seed=2)
    total(method, first)
    got = method(second, MIDDLE)
    memory, labels = torch.zeros(9, 32), torch.full((9,), -1)
    for batch in (first, second):
        _, _, f_t, z_t = seen(model, batch)
        memory[batch.target_index], labels[batch.target_index] = f_t, z_t.argmax(1)
    (f_1, *_), (f_2, z_s, _, z_t) = seen(model, first), seen(model, second)
    means = torch.zeros(3, 32)
    for label in range(3):
        one, two = f_1[first.source_labels == label].mean(0), f_2[second.source_labels == label].mean(0)
        means[label] = 0.9 * one + 0.1 * two
    moved = augmented_logits(
        z_s, second.source_labels, model.head.get_parameter("weight"), means, memory, labels, 0.25 * 0.5
    )
    p = z_t.softmax(1)
    information = entropy_of(p.mean(0)) - sum(entropy_of(row) for row in p) / 4
    expected = float(classification_loss(moved, second.source_labels, 0.1).detach()) - 0.1 * information
    assert float(got["loss"].detach()) == pytest.approx(expected, rel=1e-4)
    assert float(got["mutual_information"]) == pytest.approx(information, abs=1e-5)


def test_ila_keeps_source_classes_together_and_asks_for_labels_once(tiny: Callable[..., Model]) -> None:
    method = METHODS["ila"].create(tiny(), ILAOptions(images_per_class=2), replace(SIZES, batch=4))
    labels_N = torch.arange(12) % 3
    asked: list[str] = []

    def source_pass() -> SourcePass:
        asked.append("source")
        return SourcePass(torch.zeros(12, 32), torch.zeros(12, 3), labels_N)

    def no_target() -> TargetPass:
        raise AssertionError("no pass over the target is needed")

    epochs = [method.choose_pairs(Moment(step, 100, 10), Context(no_target, source_pass)).clone() for step in (0, 10)]
    assert asked == ["source"]
    assert not torch.equal(*epochs)
    for pairs in epochs:
        assert all(len(set(labels_N[run[:, 0]].tolist())) == 1 for run in pairs.split(2))
        assert sorted(set(pairs[:, 1].tolist())) == list(range(9))


@pytest.mark.parametrize("batch", [6, 7, 8, 11])
def test_a_batch_of_ila_holds_every_class_at_least_twice_where_it_can(batch: int, tiny: Callable[..., Model]) -> None:
    labels_N = torch.tensor([0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 2])  # an even draw would miss the rare one
    method = METHODS["ila"].create(tiny(), ILAOptions(), replace(SIZES, batch=batch, target_images=40))
    source = SourcePass(torch.zeros(12, 32), torch.zeros(12, 3), labels_N)
    pairs = method.choose_pairs(Moment(0, 100, 10), Context(lambda: target_of(40), lambda: source))
    whole = [part for part in pairs[:, 0].split(batch) if len(part) == batch]
    assert len(whole) == 40 // batch
    for part in whole:
        counts = [sum(int(labels_N[place]) == label for place in part) for label in range(3)]
        assert min(counts) >= 2, counts


def target_of(images: int) -> TargetPass:
    return TargetPass(torch.zeros(images, 32), torch.zeros(images, 3))


@pytest.mark.parametrize("adversary", ["dann", "cdan"])
def test_ila_has_the_adversary_of_dann_or_cdan_and_the_contrast(
    adversary: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny()
    batch = batch_for(model, pairs=8)
    method = create("ila", model, adversary=adversary, weight=0.4, contrastive_weight=2.0, neighbours=2)
    method.eval()  # no dropout
    outputs = method(batch, MIDDLE)
    f_s, z_s, f_t, z_t = seen(model, batch)
    inputs = [f_s, f_t]
    if adversary == "cdan":
        inputs = [torch.einsum("bf,bk->bfk", f, z.softmax(1)).flatten(1) for f, z in ((f_s, z_s), (f_t, z_t))]
    p_s, p_t = (torch.sigmoid(method.discriminator(value)).detach() for value in inputs)
    domain = -(p_s.log().mean() + (1 - p_t).log().mean()) / 2
    assert float(outputs["domain"]) == pytest.approx(float(domain), rel=1e-4)
    labels = batch.source_labels.tolist()
    unit_s, unit_t = (torch.stack([row / row.square().sum().sqrt() for row in rows]) for rows in (f_s, f_t))
    contrastive = multi_sample_contrastive(unit_s, unit_t, labels, neighbours=2, kept=5 / 8)
    assert contrastive > 0.1  # some source has a target of its class and one of another
    assert float(outputs["contrastive"]) == pytest.approx(contrastive, rel=1e-4)
    expected = float(cross_entropy(z_s, labels, 0.1)) + 0.4 * float(domain) + 2 * contrastive
    assert float(outputs["loss"].detach()) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["bnm", "can", "pct", "ckb", "tsa", "ila"])
@pytest.mark.parametrize("family", ["vit", "swin"])
def test_every_parameter_moves_and_autocast_gives_float32_losses(
    name: str, family: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny(family)
    batch, method = batch_for(model), create(name, model)
    optimiser = create_optimiser(method, TrainConfig())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = method(batch, MIDDLE)
    assert all(value.dtype == torch.float32 for value in outputs.values())
    outputs["loss"].backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in method.parameters())
    optimiser.step()
