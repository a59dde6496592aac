"""Training with low-rank adapters: what learns, what is saved, and that a run resumes exactly."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import timm
import torch
from accelerate import Accelerator
from safetensors.torch import load_file

from compiled_step import assert_one_graph
from pmtrans.backbones.lora import add_adapters, merged_state
from pmtrans.config import Config, TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.data.domain import Domain
from pmtrans.methods import METHODS, Method, Sizes
from pmtrans.methods.method import Moment
from pmtrans.model import Model
from pmtrans.run.model_folder import load_model
from pmtrans.training.failures import FiniteGuard
from pmtrans.training.players import create_optimiser
from pmtrans.training.step import Step
from pmtrans.training.train import train
from tiny_run import Crash, Witness, assert_same_run, crash

SIZES = Sizes(classes=3, source_images=12, target_images=12)
GUARD = FiniteGuard(Path(), Domain(Path(), ()), Domain(Path(), ()))
MOMENT = Moment(50, 100, 10)
SWITCHES: dict[str, dict[str, object]] = {
    "plain": {},
    "recomputed": {"checkpoint_activations": True},
    "cached": {"accumulation": "cached"},
    "both": {"accumulation": "cached", "checkpoint_activations": True},
}


def method_of(model: Model, name: str = "pmtrans") -> Method:
    """As ``build`` makes it."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.1)
    add_adapters(model.backbone, 2)
    return METHODS[name].create(model, METHODS[name].options.model_validate({}), SIZES).train()


def step_of(method: Method, batches: list[Batch], steps: int = 1, **switches: object) -> Step:
    config = TrainConfig.model_validate({"learning_rate": 1e-3, "accumulate": len(batches), **switches})
    step = Step(method, method, create_optimiser(method, config), Accelerator(cpu=True), config, GUARD)
    for seed in range(steps):
        torch.manual_seed(seed)
        step(batches, MOMENT)
    return step


@pytest.mark.parametrize("name", METHODS)
def test_only_adapters_and_what_is_new_move_and_have_optimiser_states(
    name: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    method = method_of(tiny(), name)
    before = copy.deepcopy(method.model.state_dict())
    step = step_of(method, [batch_for(method.model, targets=12)], steps=2)
    after = method.model.state_dict()
    kept = METHODS[name].method.keeps_head
    learning = {key for key in after if "lora" in key or (key.startswith("head.") and not kept)}
    assert {key for key, value in after.items() if not value.equal(before[key])} == learning
    known = {id(parameter) for parameter in step.optimiser.state}
    own = {id(parameter) for key, parameter in method.model.named_parameters() if key not in learning}
    assert known.isdisjoint(own)


@pytest.mark.parametrize("family", ["vit", "swin"])
def test_switches_for_memory_change_no_step(
    family: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    batches = [batch_for(tiny(family), 3, seed=seed, targets=12) for seed in (0, 1)]
    weights = {}
    for name, switches in SWITCHES.items():
        method = method_of(tiny(family))
        step_of(method, batches, 3, **switches)
        weights[name] = torch.cat([value.flatten() for value in merged_state(method.model).values()])
    for one, other in (("plain", "recomputed"), ("cached", "both")):
        torch.testing.assert_close(weights[one], weights[other], atol=1e-4, rtol=0)


def test_adapters_learn_at_the_rate_of_new_layers_of_their_depth(tiny: Callable[..., Model]) -> None:
    method = method_of(tiny(), "source_only")
    config = TrainConfig(learning_rate=1e-4, head_ratio=10, layer_decay=0.5)
    rates = {name: group["lr"] for group in create_optimiser(method, config).param_groups for name in group["names"]}
    for name, rate in rates.items():
        expected = 1e-3 if "head" in name else {"0": 1e-3 / 4, "1": 1e-3 / 2}[name.split(".")[4]]
        assert rate == pytest.approx(expected), name


def test_a_compiled_step_with_adapters_is_one_graph(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    method = method_of(tiny())
    assert_one_graph(method, batch_for(method.model), MOMENT)


def test_a_staged_run_with_adapters_resumes_exactly_and_saves_plain_models(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    staged = {"train__start": "source", "train__baseline": True, "train__max_steps": 4}
    config = configure(train__lora=2, train__learning_rate=1e-3, selection__game=False, **staged)
    train(config, tmp_path / "whole", Witness())
    with pytest.raises(Crash):
        train(config, tmp_path / "cut", _CrashesIn("source only"))
    with pytest.raises(Crash):
        train(config, tmp_path / "cut", _CrashesIn("pmtrans"))
    saved = load_file(tmp_path / "cut" / "checkpoints" / "step-00000002" / "tensors.safetensors")
    assert "optimiser.model.backbone.trunk.blocks.0.attn.qkv.lora_b.exp_avg" in saved
    assert "optimiser.model.backbone.trunk.blocks.0.attn.qkv.frozen.exp_avg" not in saved
    train(config, tmp_path / "cut", Witness())
    assert_same_run(tmp_path / "cut", tmp_path / "whole")

    stages = [
        load_file(tmp_path / "whole" / name / "model" / "model.safetensors") for name in ("probe", "baseline", "")
    ]
    layers = {f"blocks.0.{name}.weight" for name in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")}
    for before, after in pairwise(stages):
        assert before.keys() == after.keys()
        changed = {name for name, value in after.items() if not value.equal(before[name])}
        assert changed == {*layers, "head.weight", "head.bias"}
        for name in layers:
            assert torch.linalg.matrix_rank(after[name].double() - before[name].double(), atol=1e-6) == 2

    folder = tmp_path / "whole" / "model"
    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    image = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(model(image), load_model(folder).model(image))


class _CrashesIn(Witness):
    """After step 3 of one stage, by its title."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self.title = title

    def start(self, title: str, step: int, steps: int) -> None:
        super().start(title, step, steps)
        if title == self.title:
            self.at = {3: crash}
