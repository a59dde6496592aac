"""A bottleneck after the features: its arithmetic, its statistics, and who moves it how fast."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import pmtrans
from pmtrans.backbones.bottleneck import Bottleneck
from pmtrans.config import Config, TrainConfig
from pmtrans.methods import METHODS, Sizes
from pmtrans.methods.source_only import SourceOnly, SourceOnlyOptions
from pmtrans.model import Model
from pmtrans.progress import Reporter
from pmtrans.run.model_folder import load_model
from pmtrans.settings import load_config
from pmtrans.training.players import create_optimiser
from pmtrans.training.train import train
from tiny_run import Crash, Witness, assert_same_run, crash, once_saved


def by_hand(bottleneck: Bottleneck, features: Tensor, mean: list[float], variance: list[float]) -> Tensor:
    """relu(scale (W f - mean) / sqrt(variance + 1e-5) + shift), number by number."""
    weight = bottleneck.linear.weight.tolist()
    scale, shift = bottleneck.norm.weight.tolist(), bottleneck.norm.bias.tolist()
    rows = []
    for row in features.tolist():
        hidden = [sum(w * f for w, f in zip(ws, row, strict=True)) for ws in weight]
        normed = [(h - m) / math.sqrt(v + 1e-5) for h, m, v in zip(hidden, mean, variance, strict=True)]
        rows.append([max(0.0, a * n + b) for a, n, b in zip(scale, normed, shift, strict=True)])
    return torch.tensor(rows)


def moments(bottleneck: Bottleneck, features: Tensor) -> tuple[list[float], list[float], list[float]]:
    """Mean, variance and unbiased variance of each hidden number."""
    hidden = (features @ bottleneck.linear.weight.T).detach().T.tolist()
    mean = [sum(one) / len(one) for one in hidden]
    squares = [sum((h - m) ** 2 for h in one) for one, m in zip(hidden, mean, strict=True)]
    count = len(features)
    return mean, [s / count for s in squares], [s / (count - 1) for s in squares]


def random_bottleneck() -> tuple[Bottleneck, Tensor]:
    torch.manual_seed(0)
    bottleneck = Bottleneck(5, 4)
    for parameter in bottleneck.parameters():
        torch.nn.init.normal_(parameter)
    return bottleneck, torch.randn(7, 5)


def test_training_uses_the_statistics_of_the_batch_and_evaluation_the_running_ones() -> None:
    bottleneck, features = random_bottleneck()
    mean, variance, unbiased = moments(bottleneck, features)
    assert torch.allclose(bottleneck(features), by_hand(bottleneck, features, mean, variance), atol=1e-5)
    running_mean, running_variance = [0.1 * m for m in mean], [0.9 + 0.1 * v for v in unbiased]
    expected = by_hand(bottleneck, features, running_mean, running_variance)
    assert torch.allclose(bottleneck.eval()(features), expected, atol=1e-5)
    alone = bottleneck.train()(features[:1])  # one image has no statistics of its own
    assert torch.allclose(alone, expected[:1], atol=1e-5)


def test_settled_statistics_are_those_of_all_images() -> None:
    bottleneck, features = random_bottleneck()
    bottleneck.bare = True
    bottleneck.settle(bottleneck(features))
    bottleneck.bare = False
    mean, _, unbiased = moments(bottleneck, features)
    assert torch.allclose(bottleneck.eval()(features), by_hand(bottleneck, features, mean, unbiased), atol=1e-5)


def test_an_activation_map_sees_tokens_through_the_bottleneck_and_leaves_no_trace(tiny: Callable[..., Model]) -> None:
    wide, narrow = tiny("swin"), tiny("swin", bottleneck=6)
    tokens = narrow.backbone.embed(torch.randn(3, 3, 32, 32))
    bottleneck = narrow.backbone.bottleneck
    assert bottleneck is not None
    narrow.train()
    single = wide.backbone.encode(tokens, scored=2).tokens_BPF
    assert single is not None
    found = narrow.backbone.encode(tokens, scored=2).tokens_BPF
    assert found is not None
    assert bottleneck.norm.num_batches_tracked == 1  # of the features, after the tokens were looked at
    expected = by_hand(bottleneck, single.flatten(0, 1), [0.0] * 6, [1.0] * 6)
    assert found.shape == (2, single.shape[1], 6)
    assert torch.allclose(found.flatten(0, 1), expected, atol=1e-5)


def test_a_bottleneck_is_new_and_moves_as_fast_as_the_classifier(tiny: Callable[..., Model]) -> None:
    method = SourceOnly(tiny(bottleneck=6), SourceOnlyOptions(), Sizes(3, 12, 9))
    config = TrainConfig(learning_rate=1e-3, head_ratio=7.0, layer_decay=0.5, weight_decay=0.3)
    settings = {
        name: (group["player"], group["lr"], group["weight_decay"])
        for group in create_optimiser(method, config).param_groups
        for name in group["names"]
    }
    assert settings["model.backbone.bottleneck.linear.weight"] == ("feature_extractor", pytest.approx(7e-3), 0.3)
    assert settings["model.backbone.bottleneck.norm.weight"] == ("feature_extractor", pytest.approx(7e-3), 0.0)
    assert settings["model.backbone.trunk.norm.weight"][1] == pytest.approx(1e-3)
    assert settings["model.backbone.trunk.blocks.0.attn.qkv.weight"][1] == pytest.approx(0.25e-3)


def test_an_empty_image_of_a_check_leaves_no_trace_in_the_statistics(tiny: Callable[..., Model]) -> None:
    for name, entry in METHODS.items():
        model = tiny(bottleneck=6)
        entry.create(model, entry.options(), Sizes(3, 12, 9))
        bottleneck = model.backbone.bottleneck
        assert bottleneck is not None
        assert bottleneck.norm.num_batches_tracked == 0, name


def test_a_run_with_a_bottleneck_resumes_to_the_bit_and_its_model_reopens(
    configure: Callable[..., Config], tmp_path: Path, images: Path
) -> None:
    settings = {"train__start": "source", "train__baseline": True, "train__freeze_blocks": 1, "train__ema": 0.5}
    config = configure(**settings, backbone__bottleneck=6, method__name="shot")
    train(config, tmp_path / "whole", Reporter(quiet=True))
    stop = once_saved(tmp_path / "cut" / "baseline", "step-00000002", crash)
    with pytest.raises(Crash):
        train(config, tmp_path / "cut", Witness({3: stop}))
    train(config, tmp_path / "cut", Reporter(quiet=True))
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    reopened = load_model(tmp_path / "whole" / "model")
    assert (reopened.model.head_kind, reopened.model.backbone.features) == ("weight_norm", 6)
    bottleneck = reopened.model.backbone.bottleneck
    assert bottleneck is not None
    assert (
        int(bottleneck.norm.state_dict()["num_batches_tracked"]) > 6
    )  # the probe's, then one for each step of two stages
    answer = pmtrans.load(tmp_path / "whole").predict([str(images / "target" / "cat" / "0.png")])[0]
    assert answer.label in ("cat", "dog")


def test_the_head_behind_a_bottleneck_is_weight_normalised_for_shot_alone() -> None:
    def head(*overrides: str) -> str:
        return str(load_config(None, overrides).method["head"])

    assert head("method.name=shot") == "linear"
    assert head("method.name=shot", "backbone.bottleneck=256") == "weight_norm"
    assert head("method.name=shot", "backbone.bottleneck=256", "method.head=linear") == "linear"
    assert head("method.name=dann", "backbone.bottleneck=256") == "linear"
    assert head("method.name=pmtrans", "method.preset=reference", "backbone.bottleneck=256") == "mlp"


def test_the_authors_code_looks_at_the_class_token_of_a_distilled_deit_alone() -> None:
    assert load_config(None, ["method.preset=reference"]).backbone.distillation_token is False
    assert load_config(None, ["method.preset=paper"]).backbone.distillation_token is True
    both = load_config(None, ["method.preset=reference", "backbone.distillation_token=true"])
    assert both.backbone.distillation_token is True
