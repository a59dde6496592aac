from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pmtrans.data.batch import Batch
from pmtrans.methods import Sizes
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.methods.pmtrans_game import GameObserver
from pmtrans.methods.pmtrans_options import PMTransOptions
from pmtrans.model import Model


def observer(model: Model, batch: Batch, **switches: object) -> GameObserver:
    return GameObserver(PMTrans(model, PMTransOptions(**{"preset": "paper", **switches}), Sizes(3, 12, 9)), batch, 1e-3)


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


def test_no_gain_is_negative_and_all_are_finite(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    model = tiny()
    values = observer(model, batch_for(model))(None)
    assert values["game.p_gain"] >= 0  # staying where it is belongs to the choices
    assert values["game.f_gain"] > 0  # an untrained model can always improve
    assert values["game.c_gain"] > 0
    assert all(abs(value) < 100 for value in values.values())


def test_gain_of_p_is_the_best_of_the_grid_computed_one_by_one(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    game = observer(model, batch_for(model))
    with torch.no_grad():
        labels = game._target_labels()
        here = float(game._costs(game._encode(), labels)["cross_entropy"])
        best = here
        low, high = 0.32, 5.0
        for b in (low, (low * high) ** 0.5, high):
            for g in (low, (low * high) ** 0.5, high):
                other = observer(model, batch_for(model), beta_start=(min(b, 4.9999), min(g, 4.9999)))
                best = max(best, float(other._costs(other._encode(), labels)["cross_entropy"]))
    assert game(None)["game.p_gain"] == pytest.approx(best - here, abs=1e-3)


def test_the_same_players_give_the_same_figures(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    model = tiny()
    game = observer(model, batch_for(model))
    torch.manual_seed(1)
    first = game(None)
    torch.manual_seed(2)
    assert game(None) == first


def test_gradient_of_p_is_the_slope_of_the_cross_entropy_in_both_concentrations(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    model = tiny().eval()
    here = (1.2, 0.8)
    slopes = []
    with torch.no_grad():
        labels = observer(model, batch_for(model))._target_labels()
        for direction in (0, 1):
            costs = []
            for sign in (1, -1):
                place = tuple(value + sign * 1e-2 * (index == direction) for index, value in enumerate(here))
                game = observer(model, batch_for(model), beta_start=place)
                costs.append(float(game._costs(game._encode(), labels)["cross_entropy"]))
            slopes.append((costs[0] - costs[1]) / 2e-2)
    expected = sum(slope**2 for slope in slopes) ** 0.5
    assert expected > 1e-3
    found = observer(model, batch_for(model), beta_start=here)(None)["game.gradient_p"]
    assert found == pytest.approx(expected, rel=0.05)
