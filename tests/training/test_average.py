"""The moving average of the weights: what it is, and that it is what is judged, shipped and resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from pmtrans.config import Config
from pmtrans.data.batch import Batch
from pmtrans.data.domains import read_data
from pmtrans.processes.group import Processes
from pmtrans.progress import Reporter
from pmtrans.run.model_folder import load_model
from pmtrans.signals import StopRequest
from pmtrans.training.accelerator import create_accelerator
from pmtrans.training.build import build
from pmtrans.training.loop import Loop
from pmtrans.training.passes import Passes
from pmtrans.training.players import create_optimiser
from pmtrans.training.train import train
from tiny_run import Crash, Witness, assert_same_run, crash

DECAY = 0.6


class Steps(Loop):
    """The real loop, and the weights of the model after each step."""

    def take_step(self, batches: list[Batch]) -> tuple[dict[str, Any], bool]:
        taken = super().take_step(batches)
        self.seen = [*getattr(self, "seen", []), {k: v.clone() for k, v in self.method.model.state_dict().items()}]
        return taken


def loop_of(config: Config, folder: Path) -> Steps:
    quiet = Reporter(quiet=True)
    method, task, _ = build(config, read_data(config, quiet), quiet)
    accelerator = create_accelerator("fp32")
    passes = Passes(method.evaluated, task, 0, accelerator, Processes())
    return Steps("average", method, task, config, folder, accelerator, passes, quiet, StopRequest())


def test_the_average_is_that_of_a_loop_written_by_hand(configure: Callable[..., Config], tmp_path: Path) -> None:
    loop = loop_of(configure(train__ema=DECAY, train__learning_rate=1e-2, method__refit_head=False), tmp_path)
    loop.fit()
    expected: dict[str, Tensor] = {}
    for step, weights in enumerate(loop.seen):
        for name, value in weights.items():
            share = min(1 - 1 / (step + 1), DECAY)
            expected[name] = share * expected[name] + (1 - share) * value if step else value
    assert len(loop.seen) == 6
    assert loop.method.average is not None
    averaged = loop.method.average.model.state_dict()
    assert averaged.keys() == expected.keys()
    for name, value in averaged.items():
        assert torch.allclose(value, expected[name], rtol=1e-5, atol=1e-6), name
    assert not averaged["head.weight"].allclose(loop.seen[-1]["head.weight"], rtol=1e-4)


def test_no_player_owns_the_average_and_passes_are_made_under_it(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    loop = loop_of(configure(train__ema=DECAY), tmp_path)
    method = loop.method
    assert method.average is not None
    owned = {id(p) for group in create_optimiser(method, loop.config.train).param_groups for p in group["params"]}
    assert not owned & {id(parameter) for parameter in method.average.parameters()}
    method.train()
    assert not method.average.model.training
    before = loop.passes.target().logits_MK
    with torch.no_grad():
        method.model.head.get_parameter("weight").add_(1)
    loop.passes.forget()
    assert torch.equal(loop.passes.target().logits_MK, before)
    with torch.no_grad():
        method.average.model.head.get_parameter("weight").normal_()
    loop.passes.forget()
    assert not torch.allclose(loop.passes.target().logits_MK, before)


@pytest.mark.parametrize("method", ["pmtrans", "source_only"])
def test_the_average_is_shipped_and_resumed_exactly(
    method: str, configure: Callable[..., Config], tmp_path: Path
) -> None:
    switches = {"train__ema": DECAY, "train__learning_rate": 1e-2, "method__name": method, "train__keep_checkpoints": 9}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(configure(**switches), whole, Witness())
    shipped = load_model(whole / "model").model.backbone.state_dict(prefix="backbone.")  # the head is refitted
    saved = [load_file(path / "tensors.safetensors") for path in sorted((whole / "checkpoints").iterdir())]
    assert len(saved) == 3  # of each evaluation: the shipped model is one of these averages, and none of the models
    found = {"average.model": 0, "model": 0}
    for tensors in saved:
        for part in found:
            found[part] += all(value.equal(tensors[f"method.{part}.{name}"]) for name, value in shipped.items())
    assert found == {"average.model": 1, "model": 0}

    with pytest.raises(Crash):
        train(configure(**switches), cut, Witness({5: crash}))
    train(configure(**switches), cut, Witness())
    assert_same_run(cut, whole)


def test_without_an_average_a_method_has_no_more_state(configure: Callable[..., Config], tmp_path: Path) -> None:
    method = loop_of(configure(), tmp_path).method
    assert method.average is None
    assert method.evaluated is method.model
    assert not [name for name in method.state_dict() if name.startswith("average")]
