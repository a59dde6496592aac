"""The observer of the game beside the game played by hand: every image by itself, every loss a plain loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from scipy.stats import beta
from torch import Tensor

from by_hand import cross_entropy, log_softmax
from pmtrans.data.batch import Batch
from pmtrans.methods import Sizes
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.methods.pmtrans_game import GameObserver
from pmtrans.methods.pmtrans_options import PMTransOptions
from pmtrans.model import Model

RATE = 1e-3
START = (1.2, 0.8)  # of the concentrations


def observer(model: Model, batch: Batch, **switches: object) -> GameObserver:
    return GameObserver(PMTrans(model, PMTransOptions(**{"preset": "paper", **switches}), Sizes(3, 12, 9)), batch, RATE)


@dataclass(frozen=True)
class ByHand:
    """J = L_cls + L_f + L_l of the paper at fixed quantiles of the ratios; alpha begins at 1."""

    objective: Tensor
    cross_entropy: Tensor
    divergence: Tensor


def play(model: Model, batch: Batch, quantiles: Tensor, b: float, g: float, labels_t: list[int]) -> ByHand:
    backbone, head = model.backbone, model.head
    labels_s = batch.source_labels.tolist()
    f_s: list[Tensor] = []
    f_t: list[Tensor] = []
    f_i, w_s = [], []
    for n in range(len(labels_s)):
        token_s = backbone.embed(batch.source_images[n : n + 1])
        token_t = backbone.embed(batch.target_images[n : n + 1])
        ratio = torch.tensor(beta.ppf(quantiles[n].numpy(), b, g)).float()
        scores = []
        for tokens, features in ((token_s, f_s), (token_t, f_t)):
            encoding = backbone.encode(tokens, scored=1)
            features.append(encoding.features_BF[0])
            scores.append(backbone.attention_scores(encoding, head, torch.tensor([0]))[0])
        mixed = ratio[None, :, None] * token_s + (1 - ratio[None, :, None]) * token_t
        f_i.append(backbone.encode(mixed, scored=0).features_BF[0])
        of_source = sum(float(part) for part in ratio * scores[0])
        of_target = sum(float(part) for part in (1 - ratio) * scores[1])
        w_s.append(of_source / (of_source + of_target))
    feature_space, label_space = torch.zeros(()), torch.zeros(())
    pairs = len(labels_s)
    for n in range(pairs):
        log_p = log_softmax(head(f_i[n][None])[0])
        label_space = label_space - (w_s[n] * log_p[labels_s[n]] + (1 - w_s[n]) * log_p[labels_t[n]]) / pairs
        to_source, to_target = (
            log_softmax(torch.stack([f_i[n] @ f / f_i[n].norm() / f.norm() for f in others])) for others in (f_s, f_t)
        )
        alike = [m for m in range(pairs) if labels_s[m] == labels_s[n]]
        source = sum((to_source[m] for m in alike), start=torch.zeros(())) / len(alike)
        feature_space = feature_space - (w_s[n] * source + (1 - w_s[n]) * to_target[n]) / pairs
    classification = cross_entropy(head(torch.stack(f_s)), labels_s, smoothing=0.1)
    return ByHand(classification + feature_space + label_space, feature_space + label_space, label_space)


def predicted(model: Model, batch: Batch) -> list[int]:
    with torch.no_grad():
        labels: list[int] = model(batch.target_images).argmax(1).tolist()
    return labels


@pytest.fixture
def game(lively: Callable[[str], Model], batch_for: Callable[..., Batch]) -> GameObserver:
    """A model whose attention is far from even, and a Beta away from where it is symmetric."""
    model = lively("vit")
    return observer(model, batch_for(model), beta_start=START)


def by_hand(game: GameObserver, b: float = START[0], g: float = START[1]) -> ByHand:
    model, batch = game.method.model, game.batch
    return play(model, batch, torch.as_tensor(game.quantiles), b, g, predicted(model, batch))


@pytest.mark.parametrize("family", ["vit", "swin"])
def test_players_are_left_as_they_were(
    family: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny(family)
    game = observer(model, batch_for(model))
    before = {name: value.clone() for name, value in game.method.state_dict().items()}
    game(None)
    after = game.method.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert game.method.training
    assert all(p.grad is None for p in game.method.parameters())


def test_the_divergence_is_the_label_loss_of_the_mixed_images(game: GameObserver) -> None:
    assert game(None)["game.divergence"] == pytest.approx(float(by_hand(game).divergence.detach()), rel=1e-4)


def test_gain_of_p_is_the_best_of_its_range_over_the_present_point(game: GameObserver) -> None:
    """A grid of three by three over [0.32, 5]: 1.2649 is the geometric mean of its ends."""
    with torch.no_grad():
        here = float(by_hand(game, 0.5, 3.0).cross_entropy)
        places = (0.32, 1.2649111, 5.0)
        best = max(float(by_hand(game, b, g).cross_entropy) for b in places for g in places)
    assert best > here + 0.01
    there = observer(game.method.model, game.batch, beta_start=(0.5, 3.0))
    assert there(None)["game.p_gain"] == pytest.approx(best - here, rel=1e-3)


def test_where_p_is_above_its_whole_grid_it_has_nothing_to_gain(game: GameObserver) -> None:
    with torch.no_grad():
        here = float(by_hand(game).cross_entropy)
        places = (0.32, 1.2649111, 5.0)
        assert here > max(float(by_hand(game, b, g).cross_entropy) for b in places for g in places)
    assert game(None)["game.p_gain"] == pytest.approx(0.0, abs=1e-5)


def test_gradient_of_p_is_the_slope_of_the_cross_entropy_in_both_concentrations(game: GameObserver) -> None:
    slopes = []
    with torch.no_grad():
        for direction in ((1, 0), (0, 1)):
            costs = [
                float(
                    by_hand(game, *(c + sign * 1e-2 * d for c, d in zip(START, direction, strict=True))).cross_entropy
                )
                for sign in (1, -1)
            ]
            slopes.append((costs[0] - costs[1]) / 2e-2)
    expected = sum(slope**2 for slope in slopes) ** 0.5
    assert expected > 1e-2
    assert game(None)["game.gradient_p"] == pytest.approx(expected, rel=0.02)


def test_gradients_of_f_and_c_are_those_of_the_objective(game: GameObserver) -> None:
    values, model = game(None), game.method.model
    by_hand(game).objective.backward()
    for name, player in (("f", model.backbone), ("c", model.head)):
        squares = sum(float(p.grad.square().sum()) for p in player.parameters() if p.grad is not None)
        assert values[f"game.gradient_{name}"] == pytest.approx(squares**0.5, rel=1e-3)


@pytest.mark.parametrize("name", ["f", "c"])
def test_gain_of_f_and_of_c_is_what_two_steps_of_adam_win_while_the_others_stand_still(
    name: str, game: GameObserver
) -> None:
    gain, model = game(None)[f"game.{name}_gain"], game.method.model
    start = float(by_hand(game).objective.detach())
    labels_t = predicted(model, game.batch)  # as they were before the player moved
    player = [p for p in (model.backbone if name == "f" else model.head).parameters() if p.requires_grad]
    first = [torch.zeros_like(p) for p in player]
    second = [torch.zeros_like(p) for p in player]
    for step in (1, 2):
        cost = play(model, game.batch, torch.as_tensor(game.quantiles), *START, labels_t).objective
        for p, m, v, slope in zip(
            player, first, second, torch.autograd.grad(cost, player, allow_unused=True), strict=True
        ):
            if slope is None:
                continue
            m.mul_(0.9).add_(0.1 * slope)
            v.mul_(0.999).add_(0.001 * slope**2)
            with torch.no_grad():
                p.sub_(RATE * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8))
    with torch.no_grad():
        end = float(play(model, game.batch, torch.as_tensor(game.quantiles), *START, labels_t).objective)
    assert start - end > 1e-3
    assert gain == pytest.approx(start - end, rel=0.02)


def test_the_same_players_give_the_same_figures(game: GameObserver) -> None:
    torch.manual_seed(1)
    first = game(None)
    torch.manual_seed(2)
    assert game(None) == first
