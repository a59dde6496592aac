from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor
from torch._dynamo.utils import counters

from pmtrans.config import TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.data.domain import Domain
from pmtrans.errors import ConfigError
from pmtrans.methods import METHODS, Method, Sizes
from pmtrans.methods.method import Moment
from pmtrans.model import Model
from pmtrans.settings import load_config
from pmtrans.training.accelerator import compiled, refuse_without_compiler
from pmtrans.training.failures import FiniteGuard
from pmtrans.training.players import create_optimiser
from pmtrans.training.step import Step, joined

MOMENT = Moment(50, 100, 10)
SIZES = Sizes(classes=3, source_images=12, target_images=12)

GUARD = FiniteGuard(Path(), Domain(Path(), ()), Domain(Path(), ()))


def method_of(model: Model, name: str = "pmtrans", **switches: object) -> Method:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.1)
    method = METHODS[name].create(model, METHODS[name].options.model_validate(switches), SIZES)
    return method.train()


def trained(method: Method, steps: list[list[Batch]], **switches: object) -> tuple[list[float], dict[str, Tensor]]:
    """The losses of the steps, and what the method is after them."""
    config = TrainConfig.model_validate({"learning_rate": 1e-4, "accumulate": len(steps[0]), **switches})
    step = Step(method, method, create_optimiser(method, config), Accelerator(cpu=True), config, GUARD)
    losses = []
    for number, batches in enumerate(steps):
        torch.manual_seed(number)
        losses.append(float(step(batches, MOMENT)["loss"]))
        method.after_step(MOMENT)
    return losses, method.state_dict()


@pytest.mark.parametrize("family", ["vit", "swin"])
def test_cached_accumulation_is_the_whole_batch(
    family: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    method = method_of(tiny(family))
    each = [batch_for(method.model, 3, seed=seed, targets=12) for seed in range(40)]
    micro = [each[number : number + 2] for number in range(0, 40, 2)]
    start = copy.deepcopy(method.state_dict())
    whole, after_whole = trained(copy.deepcopy(method), [[joined(batches)] for batches in micro])
    cached, after_cached = trained(copy.deepcopy(method), micro, accumulation="cached")
    plain, _ = trained(method, micro)
    assert cached == pytest.approx(whole, rel=1e-5)
    assert plain != pytest.approx(whole, rel=1e-3)  # L_f saw micro-batches
    assert after_cached.keys() == after_whole.keys()
    assert not after_whole["mixing.beta.raw"].allclose(start["mixing.beta.raw"], rtol=1e-3)
    for name, value in after_whole.items():
        if value.is_floating_point():
            difference = after_cached[name] - value
            if name.endswith("qkv.bias"):  # softmax does not see a key's bias: its gradient is rounding, made large
                difference.chunk(3)[1].zero_()  # by AdamW
            assert difference.norm() <= 1e-5 * value.norm() + 1e-7, name


@pytest.mark.parametrize("name", METHODS)
def test_cached_accumulation_is_the_whole_batch_for_every_method(
    name: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    method = method_of(tiny(), name)
    micro = [batch_for(method.model, 4, seed=seed, targets=12) for seed in (0, 1)]
    whole, _ = trained(copy.deepcopy(method), [[joined(micro)]] * 2)
    cached, _ = trained(method, [micro] * 2, accumulation="cached")
    assert cached == pytest.approx(whole, rel=1e-4)


def test_switches_for_memory_change_no_loss(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    method = method_of(tiny())
    micro = [batch_for(method.model, 3, seed=seed, targets=12) for seed in (0, 1)]
    expected, after = trained(copy.deepcopy(method), [[joined(micro)]] * 3)
    both = {"accumulation": "cached", "checkpoint_activations": True}
    found, after_found = trained(method, [micro] * 3, **both)
    assert found == pytest.approx(expected, rel=1e-5)
    assert after_found.keys() == after.keys()


@pytest.mark.parametrize(("family", "alpha"), [("vit", "ramp"), ("swin", "learned")])
def test_a_compiled_step_is_one_graph_with_the_same_losses(
    family: str, alpha: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    method = method_of(tiny(family), alpha=alpha)
    batch = batch_for(method.model)
    names = list(method.state_dict())
    torch._dynamo.reset()
    counters.clear()
    forward = compiled(method, torch.device("cpu"), backend="aot_eager")
    for step in (50, 51, 60, 61):
        results = []
        for run in (method, forward):
            torch.manual_seed(step)
            values = run(batch, Moment(step, 100, 10))
            values["loss"].backward()
            results.append({"loss": float(values["loss"].detach()), "norm": gradient_norm(method)})
            method.zero_grad()
        assert results[1] == pytest.approx(results[0], rel=1e-5)
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 2  # of the first step, then of any step
    assert list(method.state_dict()) == names


def gradient_norm(method: Method) -> float:
    return float(torch.stack([p.grad.norm() for p in method.parameters() if p.grad is not None]).norm())


def test_without_a_compiler_one_line_says_so() -> None:
    from torch._inductor import config

    with config.patch({"cpp.cxx": ("/nowhere/g++",)}), pytest.raises(ConfigError, match="install g\\+\\+ or clang"):
        refuse_without_compiler(torch.device("cpu"))


@pytest.mark.parametrize("other", ["train.checkpoint_activations=true", "train.accumulation=cached"])
def test_a_compiled_step_is_not_recomputed(other: str) -> None:
    with pytest.raises(ConfigError, match=r"Key 'train\.compile' cannot be 'True': a compiled step chooses itself"):
        load_config(None, ["train.compile=true", other])
