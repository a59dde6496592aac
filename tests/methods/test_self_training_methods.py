"""FixBi and SHOT: who teaches whom, and what is no longer looked at."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from asked_for import asking
from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.methods import METHODS, Sizes
from pmtrans.methods.method import Context, Moment, TargetPass
from pmtrans.model import Model
from pmtrans.pseudo_labels import kmeans_pseudo_labels
from pmtrans.training.players import create_optimiser

SIZES = Sizes(classes=3, source_images=12, target_images=9)
FIRST, ALONE, MATCHING = (Moment(step, 100, 10) for step in (0, 24, 25))


def create(name: str, model: Model, **switches: Any) -> Any:
    entry = METHODS[name]
    return entry.create(model, entry.options(**switches), SIZES)


def two_networks(tiny: Callable[..., Model]) -> Any:
    """FixBi whose networks disagree, as they do after some steps, and are sharp enough to be more or less sure."""
    method = create("fixbi", tiny().eval(), deviations=0.5).eval()
    method.source_model.load_state_dict(tiny(seed=1).state_dict())
    with torch.no_grad():
        for network in (method.model, method.source_model):
            network.head.weight *= 30
        method.temperatures.copy_(torch.tensor([5.0, 3.0]))
    return method


def test_fixbi_in_plain_loops(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    method = two_networks(tiny)
    batch = batch_for(method.model, pairs=6)
    outputs, before = method(batch, MATCHING), method(batch, ALONE)
    x_s, x_t = batch.source_images, batch.target_images
    p: dict[str, list[list[float]]] = {}
    expected = {"fixed_ratio_mixup": 0.0, "self_penalisation": 0.0, "bidirectional_matching": 0.0, "consistency": 0.0}
    label: dict[str, list[int]] = {}
    sure: dict[str, list[bool]] = {}
    for name, network, ratio, temperature in (
        ("target", method.model, 0.3, 5.0),
        ("source", method.source_model, 0.7, 3.0),
    ):
        with torch.no_grad():
            z, mixed = network(x_t), network(ratio * x_s + (1 - ratio) * x_t)
        p[name] = z.softmax(1).tolist()
        top = [max(row) for row in p[name]]
        mean = sum(top) / 6
        threshold = mean - 0.5 * math.sqrt(sum((value - mean) ** 2 for value in top) / 6)
        label[name] = [row.index(max(row)) for row in p[name]]
        sure[name] = [value >= threshold for value in top]
        assert 0 < sum(sure[name]) < 6
        log_mixed = mixed.log_softmax(1)
        soft = (z / temperature).softmax(1)
        unsure = [i for i in range(6) if not sure[name][i]]
        for i in range(6):
            by_source, by_own = log_mixed[i, batch.source_labels[i]], log_mixed[i, label[name][i]]
            expected["fixed_ratio_mixup"] -= float(ratio * by_source + (1 - ratio) * by_own) / 6
        for i in unsure:
            expected["self_penalisation"] -= math.log(1 - float(soft[i, label[name][i]])) / len(unsure)
    for student, teacher in (("target", "source"), ("source", "target")):
        taught = [i for i in range(6) if sure[teacher][i]]
        for i in taught:
            expected["bidirectional_matching"] -= math.log(p[student][i][label[teacher][i]]) / len(taught)
    with torch.no_grad():
        middle = [network((x_s + x_t) / 2).softmax(1) for network in (method.model, method.source_model)]
    expected["consistency"] = float((middle[0] - middle[1]).pow(2).sum()) / 6
    penalty = expected.pop("self_penalisation")
    for name, value in expected.items():
        assert float(outputs[name]) == pytest.approx(value, rel=1e-3), name
    assert float(outputs["loss"].detach()) == pytest.approx(sum(expected.values()), rel=1e-3)
    assert float(before["self_penalisation"]) == pytest.approx(penalty, rel=1e-3)
    alone = expected["fixed_ratio_mixup"] + penalty
    assert float(before["loss"].detach()) == pytest.approx(alone, rel=1e-3)


def test_fixbi_begins_as_two_copies_that_learn_alone_then_teach_each_other(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny()
    method, batch = create("fixbi", model), batch_for(model)
    pairs = zip(method.source_model.parameters(), method.model.parameters(), strict=True)
    assert all(one is not other and torch.equal(one, other) for one, other in pairs)
    for moment in (FIRST, ALONE):
        assert set(method(batch, moment)) == {"loss", "fixed_ratio_mixup", "self_penalisation"}
    matching = method(batch, MATCHING)
    assert set(matching) == {"loss", "fixed_ratio_mixup", "bidirectional_matching", "consistency"}
    matching["loss"].backward()
    networks = (*method.model.parameters(), *method.source_model.parameters())
    assert all(p.grad is not None and p.grad.isfinite().all() for p in networks)


def test_all_parts_of_fixbi_learn_at_one_rate(tiny: Callable[..., Model]) -> None:
    optimiser = create_optimiser(create("fixbi", tiny()), TrainConfig(learning_rate=1e-3, head_ratio=10.0))
    assert {group["lr"] for group in optimiser.param_groups} == {1e-3}


def test_shot_looks_at_no_source_image_and_gives_its_classifier_no_gradient(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    method, batch = create("shot", model), batch_for(model)
    method.pseudo_labels_M.copy_(torch.tensor([2, 1, 0, 2, 1, 0, 2, 1, 0]))
    with torch.no_grad():
        p = model(batch.target_images).softmax(1)
    labels = method.pseudo_labels_M[batch.target_index].tolist()
    certain = sum(-float(q * q.log()) for row in p for q in row) / 4
    diverse = sum(-float(q * q.log()) for q in p.mean(0))
    taught = sum(-math.log(float(p[i, labels[i]])) for i in range(4)) / 4
    none = torch.empty(0)
    loss = method(Batch(none, none.long(), none.long(), batch.target_images, batch.target_index), FIRST)["loss"]
    assert float(loss.detach()) == pytest.approx(certain - diverse + 0.3 * taught, rel=1e-4)
    loss.backward()
    assert all(parameter.grad is None for parameter in model.head.parameters())
    assert all(parameter.grad is not None for parameter in model.backbone.parameters())


def test_shot_leaves_its_classifier_where_it_was(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    model = tiny(head="mlp")
    method, batch = create("shot", model), batch_for(model)
    optimiser = create_optimiser(method, TrainConfig(learning_rate=1e-2))
    before = copy.deepcopy(model.state_dict())
    for moment in (FIRST, MATCHING):  # the second with momentum and decay waiting to act
        method(batch, moment)["loss"].backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    changed = {name.split(".")[0] for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"backbone"}


def test_shot_labels_the_target_as_it_sets_out_and_at_each_epoch(tiny: Callable[..., Model]) -> None:
    method = create("shot", tiny())
    asked: list[int] = []
    torch.manual_seed(0)
    target = TargetPass(torch.randn(9, 32), torch.randn(9, 3))
    for step in range(25):
        context = Context(partial(asking, asked, step, target))
        method.before_step(Moment(step, 100, 10), context)
        assert ("pseudo_labels_changed" in context.metrics) == (step in (10, 20))
    assert asked == [0, 10, 20]
    expected = kmeans_pseudo_labels(target.features_MF, logits_MK=target.logits_MK)
    assert torch.equal(method.pseudo_labels_M, expected)


@pytest.mark.parametrize(
    ("name", "switches"),
    [("shot", {}), ("source_free", {"pseudo_labels": "propagation"}), ("source_free", {"pseudo_labels": "kmeans"})],
)
def test_labels_that_the_user_gave_stay_the_pseudo_labels(
    name: str, switches: dict[str, str], tiny: Callable[..., Model]
) -> None:
    method = create(name, tiny(), **switches)
    torch.manual_seed(0)
    target = TargetPass(torch.randn(9, 32), torch.randn(9, 3))
    places = [2, 5, 7]
    given = [(int(target.logits_MK[place].argmax()) + 1) % 3 for place in places]  # not what the model says
    method.pin(places, given, 9)
    method.before_step(FIRST, Context(lambda: target))
    assert method.pseudo_labels_M[places].tolist() == given
