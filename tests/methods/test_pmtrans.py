from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from asked_for import asking
from pmtrans.backbones.encoding import Encoding
from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.losses import (
    classification_loss,
    identity_similarity,
    label_similarity,
    mixup_feature_loss,
    mixup_label_loss,
)
from pmtrans.methods import METHODS, Sizes
from pmtrans.methods.method import Context, Moment, TargetPass
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.methods.pmtrans_options import PMTransOptions
from pmtrans.mixing import label_weights
from pmtrans.model import Model
from pmtrans.pseudo_labels import kmeans_pseudo_labels
from pmtrans.training.players import create_optimiser

MOMENT = Moment(step=50, steps=100, steps_per_epoch=10)
SIZES = Sizes(classes=3, source_images=12, target_images=9)


def create(model: Model, **switches: Any) -> PMTrans:
    method = PMTrans(model, PMTransOptions(**{"preset": "paper", **switches}), SIZES)
    method.pseudo_labels_M.copy_(torch.arange(9) % 3)
    if method.bank is not None:
        torch.manual_seed(3)
        method.bank.fill(torch.randn(9, model.backbone.features), probabilities_MK=torch.randn(9, 3).softmax(1))
    return method


def loss_of(method: PMTrans, batch: Batch, name: str = "loss", moment: Moment = MOMENT) -> torch.Tensor:
    torch.manual_seed(7)  # the same ratios whenever it is called
    outputs: torch.Tensor = method(batch, moment)[name]
    return outputs


@pytest.mark.parametrize("family", ["vit", "swin"])
def test_objective_is_put_together_as_in_algorithm_1(
    family: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    """The whole step again, image by image and without the one pass of 3B."""
    model = tiny(family).eval()
    method, batch = create(model, alpha="fixed", alpha_value=0.7), batch_for(model)
    torch.manual_seed(7)
    outputs = method(batch, MOMENT)
    torch.manual_seed(7)
    ratio = method.mixing.ratios(4)
    backbone, head = model.backbone, model.head
    pseudo = method.pseudo_labels_M[batch.target_index]
    features: dict[str, list[torch.Tensor]] = {"s": [], "t": [], "i": []}
    scores: dict[str, list[torch.Tensor]] = {"s": [], "t": []}
    for n in range(4):
        token_s, token_t = (
            backbone.embed(batch.source_images[n : n + 1]),
            backbone.embed(batch.target_images[n : n + 1]),
        )
        mixed = ratio[n][None, :, None] * token_s + (1 - ratio[n][None, :, None]) * token_t
        for key, tokens, label in (("s", token_s, batch.source_labels[n]), ("t", token_t, pseudo[n])):
            encoding = backbone.encode(tokens, scored=1)
            features[key].append(encoding.features_BF)
            scores[key].append(backbone.attention_scores(encoding, head, label[None]))
        features["i"].append(backbone.encode(mixed, scored=0).features_BF)
    f_s, f_t, f_i = (torch.cat(features[key]) for key in "sti")
    w_s, w_t = label_weights(ratio, torch.cat(scores["s"]), torch.cat(scores["t"]))
    classification = classification_loss(head(f_s), batch.source_labels, 0.1)
    label_space = mixup_label_loss(head(f_i), batch.source_labels, pseudo, w_s, w_t)
    similarity = label_similarity(batch.source_labels), identity_similarity(pseudo)
    feature_space = mixup_feature_loss(f_i, f_s, f_t, *similarity, w_s, w_t)
    assert float(outputs["classification"]) == pytest.approx(float(classification.detach()), rel=1e-4)
    assert float(outputs["label_space"]) == pytest.approx(float(label_space.detach()), rel=1e-4)
    assert float(outputs["feature_space"]) == pytest.approx(float(feature_space.detach()), rel=1e-4)
    expected = classification + 0.7 * (feature_space + label_space)
    assert float(outputs["loss"].detach()) == pytest.approx(float(expected.detach()), rel=1e-4)


@pytest.mark.parametrize("family", ["vit", "swin"])
def test_one_step_is_one_embedding_of_2b_and_one_pass_of_3b(
    family: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny(family)
    method, batch = create(model), batch_for(model)
    sizes: dict[str, list[int]] = {"stem": [], "trunk": []}
    model.backbone.stem.register_forward_pre_hook(lambda _, args: sizes["stem"].append(len(args[0])))
    first = next(m for n, m in model.backbone.trunk.named_children() if n in ("blocks", "layers"))
    first.register_forward_pre_hook(lambda _, args: sizes["trunk"].append(len(args[0])))
    loss_of(method, batch).backward()
    assert sizes == {"stem": [4, 4], "trunk": [12]}  # the pixels of both domains are never copied into one batch


@pytest.mark.parametrize("family", ["vit", "swin"])
def test_the_step_of_p_raises_the_cross_entropy_and_that_of_f_and_c_lowers_it(
    family: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    """On a fixed batch and with the same noise: the same uniform quantiles before and after."""
    from scipy.special import betaincinv

    model = tiny(family).eval()
    method, batch = create(model), batch_for(model, seed=5)
    quantiles = torch.rand(4, model.backbone.patches, generator=torch.Generator().manual_seed(0)).double()

    def cross_entropy(of: PMTrans) -> float:
        b, g = of.mixing.beta.concentrations().tolist()
        of.mixing.ratios = lambda pairs: torch.tensor(betaincinv(b, g, quantiles.numpy())).float()  # type: ignore[method-assign]
        with torch.no_grad():
            return float(of(batch, MOMENT)["cross_entropy"])

    def moved(player: str) -> PMTrans:
        other = copy.deepcopy(method)
        optimiser = create_optimiser(other, TrainConfig(learning_rate=1e-3, head_ratio=1.0))
        gradients = [torch.zeros_like(p) for p in other.parameters()]
        for repeat in range(64):  # the gradient of the expectation, not of one draw
            torch.manual_seed(repeat)
            loss = other(batch, MOMENT)["loss"]
            for total, part in zip(gradients, torch.autograd.grad(loss, list(other.parameters())), strict=True):
                total += part / 64
        for parameter, gradient in zip(other.parameters(), gradients, strict=True):
            parameter.grad = gradient
        for group in optimiser.param_groups:
            group["lr"] = 1e-3 if group["player"] in ("feature_extractor", "classifier") else 0.02
            if group["player"] != player:
                for parameter in group["params"]:
                    parameter.grad = None
        optimiser.step()
        return other

    before = cross_entropy(copy.deepcopy(method))
    assert cross_entropy(moved("patchmix")) > before
    assert cross_entropy(moved("feature_extractor")) < before
    assert cross_entropy(moved("classifier")) < before


@pytest.mark.parametrize(("beta", "sign"), [("ascend", 1), ("descend", -1), ("fixed", 0)])
def test_the_concentrations_move_in_the_direction_that_was_asked_for(
    beta: str, sign: int, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny()
    method, batch = create(model, beta=beta), batch_for(model)
    optimiser = create_optimiser(method, TrainConfig())
    before = method.mixing.beta.raw.detach().clone()
    loss_of(method, batch).backward()
    gradient = method.mixing.beta.raw.grad
    optimiser.step()
    moved = (method.mixing.beta.raw.detach() - before).sign()
    if sign == 0:
        assert gradient is None
        assert moved.tolist() == [0, 0]
    else:
        assert gradient is not None
        assert gradient.abs().min() > 0
        assert moved.tolist() == (sign * gradient.sign()).tolist()


@pytest.mark.parametrize(("refresh", "made"), [(None, [0, 8, 16, 24, 32]), (15, [0, 15, 30])])
def test_pseudo_labels_are_made_when_the_game_begins_and_then_at_each_epoch_or_every_so_many_steps(
    refresh: int | None, made: list[int], tiny: Callable[..., Model]
) -> None:
    method = PMTrans(tiny(), PMTransOptions(preset="paper", refresh_steps=refresh), SIZES)
    asked: list[int] = []
    torch.manual_seed(0)
    passes = [TargetPass(torch.randn(9, 32), torch.randn(9, 3)) for _ in range(41)]
    changed = {}
    for step in range(40):
        context = Context(partial(asking, asked, step, passes[step]))
        old = method.pseudo_labels_M.clone()
        method.before_step(Moment(step, 40, 8), context)
        if "pseudo_labels_changed" in context.metrics:
            changed[step] = float(context.metrics["pseudo_labels_changed"])
            assert changed[step] == pytest.approx(
                sum(a != b for a, b in zip(old.tolist(), method.pseudo_labels_M.tolist(), strict=True)) / 9
            )
    assert asked == made
    assert list(changed) == made[1:]


def test_reused_features_are_those_that_training_saw_after_one_full_pass(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny()
    method, batch = PMTrans(model, PMTransOptions(preset="paper", reuse_features=True), SIZES).train(), batch_for(model)
    torch.manual_seed(0)
    passed = TargetPass(torch.randn(9, 32), torch.randn(9, 3))
    asked: list[int] = []
    for step in range(9):
        context = Context(partial(asking, asked, step, passed))
        method.before_step(Moment(step, 40, 8), context)
        if step == 0:
            kept = copy.deepcopy(method)
            outputs = method(batch, Moment(step, 40, 8))
    assert asked == [0]
    backbone = model.backbone
    with torch.no_grad():
        features = backbone.encode(backbone.embed(batch.target_images), scored=0).features_BF
        expected_features, expected_logits = passed.features_MF.clone(), passed.logits_MK.clone()
        expected_features[batch.target_index], expected_logits[batch.target_index] = features, model.head(features)
    assert method.seen is not None
    assert torch.allclose(method.seen.features_MF, expected_features, atol=1e-5)
    assert torch.allclose(method.seen.logits_MK, expected_logits, atol=1e-5)
    labels = kmeans_pseudo_labels(expected_features, logits_MK=expected_logits)
    assert torch.equal(method.pseudo_labels_M, labels)  # made at step 8, where an epoch begins
    assert {"seen.features_MF", "seen.logits_MK"} <= set(method.state_dict())
    assert kept.seen is not None
    assert not torch.equal(kept.seen.features_MF, method.seen.features_MF)
    method.eval()(batch_for(model, seed=9), MOMENT)
    assert torch.allclose(method.seen.features_MF, expected_features, atol=1e-5)  # an evaluation enters nothing
    assert outputs["loss"].requires_grad


def test_reusing_features_does_not_change_the_step_itself(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    losses = []
    for reuse in (False, True):
        model = tiny()
        method = create(model, reuse_features=reuse).train()
        losses.append(loss_of(method, batch_for(model)))
    assert torch.equal(*losses)


def test_every_switch_trains(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    switches: list[dict[str, Any]] = [
        {"mixing": "mixup"}, {"mixing": "cutmix"}, {"beta": "fixed(2,2)"}, {"attention": "uniform"},
        {"feature_loss": False}, {"label_loss": False}, {"class_information": True}, {"alpha": "ramp"},
        {"alpha": "fixed"}, {"pseudo_labels": "neighbours"}, {"head": "mlp"}, {"preset": "reference"},
        {"preset": "reference", "head": "linear"},
    ]  # fmt: skip
    for family in ("vit", "swin"):
        for switch in switches:
            model = tiny(family, head=PMTransOptions(**switch).head)
            method, batch = create(model, **switch), batch_for(model)
            optimiser = create_optimiser(method, TrainConfig())
            loss = loss_of(method, batch)
            loss.backward()
            optimiser.step()
            assert loss.isfinite(), switch
            assert all(p.grad is None or p.grad.isfinite().all() for p in method.parameters()), switch


def test_switched_off_losses_are_zero_and_leave_the_rest_as_it_is(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    batch = batch_for(model)
    both, no_feature = create(model), create(model, feature_loss=False)
    assert float(loss_of(no_feature, batch, "feature_space")) == 0
    assert float(loss_of(no_feature, batch, "label_space")) == pytest.approx(float(loss_of(both, batch, "label_space")))
    assert float(loss_of(create(model, label_loss=False), batch, "label_space")) == 0


def test_reference_preset_is_the_authors_code_and_keys_given_win() -> None:
    reference = PMTransOptions(preset="reference")
    assert (reference.beta, reference.alpha, reference.pseudo_labels, reference.head) == (
        "descend",
        "softplus",
        "neighbours",
        "mlp",
    )
    assert (reference.ratio_weighs, reference.positives, reference.attention) == ("target", "sum", "softmaxed")
    assert PMTransOptions(preset="reference", head="linear").head == "linear"
    assert PMTransOptions(beta="fixed(2, 0.5)").beta_start == (2.0, 0.5)


def test_reference_weighs_the_target_with_the_beta_sample(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    skewed = {"beta_start": (4.0, 0.5), "attention": "uniform"}
    source = loss_of(create(model, **skewed), batch_for(model), "label_weight_mean")
    target = loss_of(create(model, ratio_weighs="target", **skewed), batch_for(model), "label_weight_mean")
    assert float(source) > 0.8
    assert float(target) < 0.2


@pytest.mark.parametrize(("labels", "same"), [("neighbours", True), ("kmeans", False)])
def test_only_the_votes_of_the_bank_are_normalised_in_the_label_space(
    labels: str, same: bool, tiny: Callable[..., Model]
) -> None:
    method = create(tiny(), pseudo_labels=labels, attention="uniform", feature_loss=False)
    encoding = Encoding(torch.randn(4, 32))
    arguments = torch.rand(4, 4), encoding, encoding, encoding, torch.randn(4, 3), (torch.arange(4) % 3,) * 2
    trust = torch.rand(4)
    one, other = (float(method.cross_entropy(*arguments, scale * trust)[1]) for scale in (1.0, 0.1))
    assert (one == pytest.approx(other, rel=1e-4)) is same


def test_learned_alpha_moves_with_the_descending_players(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny()
    method, batch = create(model), batch_for(model)
    optimiser = create_optimiser(method, TrainConfig())
    loss_of(method, batch).backward()
    optimiser.step()
    assert float(method.tradeoff.alpha(0.5)) < 1  # the loss is above 1, so the weight must shrink


def test_autocast_keeps_losses_and_beta_in_float32(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    model = tiny()
    method, batch = create(model), batch_for(model)
    torch.manual_seed(7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = method(batch, MOMENT)
    assert all(value.dtype == torch.float32 for value in half.values())
    assert float(half["loss"].detach()) == pytest.approx(float(loss_of(method, batch).detach()), rel=0.02)


def test_registry_knows_pmtrans_and_the_baseline() -> None:
    assert {"pmtrans", "source_only"} <= set(METHODS)
