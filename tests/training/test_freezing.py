"""Training with frozen blocks: what stands still, what moves, and what memory it takes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from torch import Tensor

from compiled_step import assert_one_graph
from pmtrans.backbones.frozen import freeze_blocks
from pmtrans.config import Config, TrainConfig
from pmtrans.data.batch import Batch
from pmtrans.data.domain import Domain
from pmtrans.methods import METHODS, Method, Sizes
from pmtrans.methods.method import Moment
from pmtrans.model import Model
from pmtrans.progress import Reporter
from pmtrans.run.metrics import read_metrics
from pmtrans.training.failures import FiniteGuard
from pmtrans.training.players import create_optimiser, fix_betas
from pmtrans.training.step import Step
from pmtrans.training.train import train
from tiny_run import Crash, Witness, assert_same_run, crash

SIZES = Sizes(classes=3, source_images=12, target_images=12)
GUARD = FiniteGuard(Path(), Domain(Path(), ()), Domain(Path(), ()))
MOMENT = Moment(50, 100, 10)


def method_of(model: Model, frozen: int, name: str = "pmtrans") -> Method:
    """As ``build`` makes it."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.1)
    freeze_blocks(model.backbone, frozen)
    method = METHODS[name].create(model, METHODS[name].options.model_validate({}), SIZES)
    fix_betas(method, frozen, Reporter(quiet=True))
    return method.train()


def step_of(method: Method, batches: list[Batch], **switches: object) -> tuple[float, int, Step]:
    """The loss of one step, the most bytes that were kept for backward passes, and the step."""
    config = TrainConfig.model_validate({"learning_rate": 1e-3, "accumulate": len(batches), **switches})
    step = Step(method, method, create_optimiser(method, config), Accelerator(cpu=True), config, GUARD)
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    torch.manual_seed(0)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = float(step(batches, MOMENT)["loss"])
    return loss, sum(kept.values()), step


@pytest.mark.parametrize("name", METHODS)
def test_frozen_weights_stand_still_and_the_others_move(
    name: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    method = method_of(tiny(), 1, name)
    before = copy.deepcopy(method.model.state_dict())
    *_, step = step_of(method, [batch_for(method.model, targets=12)])
    after = method.model.state_dict()
    still = {key for key, value in after.items() if value.equal(before[key])}
    first = {key for key in after if key.startswith(("backbone.stem.", "backbone.trunk.blocks.0."))}
    own = {"head.weight", "head.bias"} if METHODS[name].method.keeps_head else set()  # fixed by the method itself
    assert still == first | {"backbone.trunk.cls_token", "backbone.trunk.pos_embed"} | own
    known = {id(parameter) for parameter in step.optimiser.state}
    assert known <= {id(parameter) for parameter in method.parameters() if parameter.requires_grad}


@pytest.mark.parametrize("family", ["vit", "swin"])
def test_frozen_blocks_keep_no_activations(
    family: str, tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    batches = [batch_for(tiny(family), 3, seed=seed, targets=12) for seed in (0, 1)]
    kept = [step_of(method_of(tiny(family), frozen), batches)[1] for frozen in (0, 1, 2)]
    assert kept[1] < 0.75 * kept[0]
    assert kept[2] < 0.6 * kept[1]


def test_switches_for_memory_change_no_loss(tiny: Callable[..., Model], batch_for: Callable[..., Batch]) -> None:
    batches = [batch_for(tiny(), 3, seed=seed, targets=12) for seed in (0, 1)]
    plain, kept, _ = step_of(method_of(tiny(), 1), batches)
    recomputed, kept_less, _ = step_of(method_of(tiny(), 1), batches, checkpoint_activations=True)
    assert recomputed == pytest.approx(plain, rel=1e-6)
    assert kept_less < kept
    cached = {"accumulation": "cached"}
    whole, _, _ = step_of(method_of(tiny(), 1), batches, **cached)
    both, _, _ = step_of(method_of(tiny(), 1), batches, **cached, checkpoint_activations=True)
    assert both == pytest.approx(whole, rel=1e-6)


def test_a_compiled_step_with_frozen_blocks_is_one_graph(
    tiny: Callable[..., Model], batch_for: Callable[..., Batch]
) -> None:
    method = method_of(tiny(), 1)
    assert_one_graph(method, batch_for(method.model), MOMENT)


def test_a_run_with_frozen_blocks_says_that_its_beta_is_fixed_and_resumes_exactly(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    config = configure(train__freeze_blocks=1, train__baseline=True, train__weight_decay=0.5)
    witness = Witness()
    train(config, tmp_path / "whole", witness)
    said = [text for text in witness.said if "freeze_blocks" in text]
    assert said == ["train.freeze_blocks=1: no gradient passes frozen blocks, so the Beta is fixed"]
    lines = [line for line in read_metrics(tmp_path / "whole" / "metrics.jsonl") if "beta_b" in line]
    assert len(lines) == 6
    assert {(line["beta_b"], line["beta_g"]) for line in lines} == {(lines[0]["beta_b"], lines[0]["beta_g"])}
    runs = tmp_path / "whole", tmp_path / "whole" / "baseline"  # which began with the same weights
    models = [load_file(run / "model" / "model.safetensors") for run in runs]
    for name, value in models[0].items():
        assert value.equal(models[1][name]) == name.startswith(("patch_embed", "blocks", "cls_token", "pos_embed"))

    alone = config.model_copy(update={"train": config.train.model_copy(update={"baseline": False})})
    with pytest.raises(Crash):
        train(alone, tmp_path / "cut", Witness({5: crash}))
    train(alone, tmp_path / "cut", Witness())
    train(alone, tmp_path / "alone", Witness())
    assert_same_run(tmp_path / "cut", tmp_path / "alone")


def test_without_a_frozen_block_the_beta_learns(configure: Callable[..., Config], tmp_path: Path) -> None:
    witness = Witness()
    train(configure(), tmp_path / "run", witness)
    assert not [text for text in witness.said if "freeze_blocks" in text]
    lines = [line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if "beta_b" in line]
    assert len({line["beta_b"] for line in lines}) > 1
