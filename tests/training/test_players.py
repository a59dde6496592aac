from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from pmtrans.backbones.create import create_backbone
from pmtrans.config import TrainConfig
from pmtrans.methods import Sizes
from pmtrans.methods.fixbi import FixBi, FixBiOptions
from pmtrans.methods.pmtrans import PMTrans
from pmtrans.methods.pmtrans_options import PMTransOptions
from pmtrans.methods.source_only import SourceOnly, SourceOnlyOptions
from pmtrans.model import Model
from pmtrans.training.players import create_optimiser, learning_rate_factor, set_learning_rates


def test_each_player_has_its_rate_its_direction_and_its_decay(tiny: Callable[..., Model]) -> None:
    method = PMTrans(tiny(), PMTransOptions(preset="paper"), Sizes(3, 12, 9))
    config = TrainConfig(learning_rate=1e-4, head_ratio=10, weight_decay=0.05)
    groups = create_optimiser(method, config).param_groups
    by_player = {group["player"]: group for group in groups}
    assert by_player["patchmix"]["maximize"]
    assert not any(group["maximize"] for group in groups if group["player"] != "patchmix")
    assert by_player["feature_extractor"]["lr"] == pytest.approx(1e-4)
    assert by_player["classifier"]["lr"] == pytest.approx(1e-3)
    assert by_player["patchmix"]["lr"] == pytest.approx(3e-3)
    for group in groups:
        decays = group["player"] in ("feature_extractor", "classifier")
        for parameter in group["params"]:
            special = parameter is method.model.backbone.trunk.cls_token or parameter.shape == (1, 5, 32)  # positions
            assert group["weight_decay"] == (0.05 if decays and parameter.ndim > 1 and not special else 0)
    assert sum(len(group["params"]) for group in groups) == len(list(method.parameters()))


WITHOUT_DECAY = {
    "vit": {"trunk.cls_token", "trunk.pos_embed"},
    "distilled": {"trunk.cls_token", "trunk.dist_token", "trunk.pos_embed"},
    "registers": {"trunk.cls_token", "trunk.reg_token", "trunk.pos_embed"},
    "rotary": {"trunk.cls_token", "trunk.reg_token"},
    "swin": {f"trunk.layers.{stage}.blocks.0.attn.relative_position_bias_table" for stage in (0, 1)},
}


@pytest.mark.parametrize("family", WITHOUT_DECAY)
def test_positions_and_tokens_do_not_decay(family: str, tiny: Callable[..., Model]) -> None:
    """One step of AdamW along no gradient is the decay alone: w (1 - rate decay)."""
    model = tiny(family)
    assert model.backbone.names_without_decay() == WITHOUT_DECAY[family]
    method = SourceOnly(model, SourceOnlyOptions(), Sizes(3, 12, 9))
    config = TrainConfig(learning_rate=0.1, head_ratio=10, weight_decay=0.5)
    optimiser = create_optimiser(method, config)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    for name, parameter in model.named_parameters():
        still = parameter.ndim == 1 or name.removeprefix("backbone.") in WITHOUT_DECAY[family]
        kept = 1.0 if still else 1 - (1.0 if name.startswith("head") else 0.1) * 0.5
        assert torch.allclose(parameter, kept * before[name], atol=0), name


def test_a_module_that_timm_names_stands_for_its_parameters() -> None:
    options = {"embed_dim": 16, "depths": (1, 1), "num_heads": (1, 2), "window_size": 4}
    names = create_backbone("swinv2_tiny_window8_256", "none", 32, options).names_without_decay()
    within = ("cpb_mlp.0.weight", "cpb_mlp.0.bias", "cpb_mlp.2.weight")
    assert names == {f"trunk.layers.{stage}.blocks.0.attn.{name}" for stage in (0, 1) for name in within}


def test_schedules_are_functions_of_the_step() -> None:
    assert learning_rate_factor("inverse", 0, 100, 0) == 1
    assert learning_rate_factor("inverse", 1000, 2000, 0) == pytest.approx(2**-0.75)
    assert learning_rate_factor("cosine", 0, 100, 0) == 1
    assert learning_rate_factor("cosine", 25, 100, 0) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert learning_rate_factor("cosine", 100, 100, 0) == pytest.approx(0)
    assert learning_rate_factor("constant", 77, 100, 0) == 1
    warm = [learning_rate_factor("cosine", step, 100, 4) for step in range(5)]
    assert warm == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


@pytest.mark.parametrize(
    ("steps", "expected"), [(1, 0), (10, 0), (19, 0), (20, 1), (29, 1), (30, 2), (100, 5), (109, 5), (110, 6)]
)
def test_a_twentieth_of_the_steps_warms_up_unless_there_are_few(steps: int, expected: int) -> None:
    factors = [learning_rate_factor("constant", step, steps, None) for step in range(steps)]
    assert factors == [(step + 1) / (expected + 1) if step < expected else 1.0 for step in range(steps)]
    assert [learning_rate_factor("inverse", step, steps, 0) for step in (0, steps)] == [1, (1 + steps / 1000) ** -0.75]
    rates = [set_learning_rates([{"player": "f", "base_rate": 2.0}], TrainConfig(schedule="constant"), 0, steps)]
    assert rates == [{"learning_rate.f": 2.0 / (expected + 1)}]


def test_a_rate_of_its_own_follows_the_same_curve(tiny: Callable[..., Model]) -> None:
    method = PMTrans(tiny(), PMTransOptions(preset="paper"), Sizes(3, 12, 9))
    groups = create_optimiser(method, TrainConfig(learning_rate=1e-4)).param_groups
    config = TrainConfig(learning_rate=1e-4, schedule="cosine", warmup_steps=0)
    rates = set_learning_rates(groups, config, 50, 100)
    assert rates["learning_rate.feature_extractor"] == pytest.approx(5e-5)
    assert rates["learning_rate.patchmix"] == pytest.approx(1.5e-3)


def test_lower_layers_learn_more_slowly(tiny: Callable[..., Model]) -> None:
    """The rates of the players' first steps of AdamW: without decay a step is rate x sign(gradient)."""
    method = FixBi(tiny(), FixBiOptions(), Sizes(3, 12, 9))
    config = TrainConfig(learning_rate=0.1, head_ratio=2, weight_decay=0, layer_decay=0.5, warmup_steps=0)
    optimiser = create_optimiser(method, config)
    logged = set_learning_rates(optimiser.param_groups, config, 0, 100)
    assert logged["learning_rate.feature_extractor"] == logged["learning_rate.source_feature_extractor"] == 0.1
    before = {name: parameter.detach().clone() for name, parameter in method.named_parameters()}
    for parameter in method.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    expected = {
        "stem.": 0.0125,
        "trunk.": 0.0125,
        "trunk.blocks.0.": 0.025,
        "trunk.blocks.1.": 0.05,
        "trunk.norm.": 0.1,
    }
    for name, parameter in method.named_parameters():
        rate = 0.1  # FixBi has no other one for new layers
        for start, slower in expected.items():
            rate = slower if name.startswith(f"model.backbone.{start}") else rate
        assert torch.allclose(before[name] - parameter, torch.full_like(parameter, rate), atol=1e-6), name


def test_one_rate_for_all_layers_needs_no_more_groups(tiny: Callable[..., Model]) -> None:
    method = SourceOnly(tiny(), SourceOnlyOptions(), Sizes(3, 12, 9))
    groups = create_optimiser(method, TrainConfig()).param_groups
    found = [(group["player"], group["weight_decay"], group["lr"]) for group in groups]
    rates = {"feature_extractor": 5e-5, "classifier": 5e-4}
    assert found == [(name, decay, pytest.approx(rate)) for name, rate in rates.items() for decay in (0.05, 0.0)]
