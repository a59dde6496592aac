"""What a method is told about where in the training it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pmtrans.config import Config
from pmtrans.data.domains import read_data
from pmtrans.methods.method import Context, Moment, Sizes
from pmtrans.methods.source_only import SourceOnly, SourceOnlyOptions
from pmtrans.processes.group import Processes
from pmtrans.progress import Reporter
from pmtrans.signals import StopRequest
from pmtrans.training.accelerator import create_accelerator
from pmtrans.training.build import build
from pmtrans.training.loop import Loop, Observer
from pmtrans.training.passes import Evaluation, Passes
from tiny_run import Crash


def fit(config: Config, folder: Path, kind: type[SourceOnly], *observers: Observer) -> Loop:
    quiet = Reporter(quiet=True)
    _, task, trained = build(config, read_data(config, quiet), quiet)
    method = kind(trained.model, SourceOnlyOptions(), Sizes(trained.model.classes, len(task.source), len(task.target)))
    accelerator = create_accelerator("fp32")
    passes = Passes(method.evaluated, task, 0, accelerator, Processes())
    loop = Loop("moment", method, task, config, folder, accelerator, passes, quiet, StopRequest())
    loop.fit(observers)
    return loop


def test_a_method_is_told_how_many_images_of_a_domain_went_before(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    seen: list[int] = []

    class Counting(SourceOnly):
        def before_step(self, moment: Moment, context: Context) -> None:
            seen.append(moment.images_seen)

    fit(configure(train__batch_size=3, train__accumulate=2, train__max_steps=3), tmp_path, Counting)
    assert seen == [0, 6, 12]


def test_a_settled_head_is_what_evaluations_see_and_stays_after_the_last_one_only(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    seen: list[object] = []

    class Settling(SourceOnly):
        def _is_settled(self) -> bool:
            return self.model.head.get_parameter("bias").tolist() == [1.0, 2.0]

        def before_step(self, moment: Moment, context: Context) -> None:
            seen.append((moment.step, self._is_settled()))

        def settle_head(self, context: Context) -> bool:
            context.target_pass()
            with torch.no_grad():
                self.model.head.get_parameter("weight").zero_()
                self.model.head.get_parameter("bias").copy_(torch.tensor([1.0, 2.0]))
            return True

    def observe(evaluation: Evaluation) -> dict[str, float]:
        seen.append(("evaluation", evaluation.step, evaluation.target.logits_MK.unique(dim=0).tolist() == [[1.0, 2.0]]))
        return {}

    loop = fit(configure(train__max_steps=4, train__evaluate_every=2), tmp_path, Settling, observe)
    steps = [(step, False) for step in range(4)]
    assert seen == [*steps[:2], ("evaluation", 2, True), *steps[2:], ("evaluation", 4, True)]
    assert loop.method.model.head.get_parameter("bias").tolist() == [1.0, 2.0]
    assert loop.evaluation().target.logits_MK.unique(dim=0).tolist() == [[1.0, 2.0]]


def test_a_settled_head_is_put_back_where_an_evaluation_fails(configure: Callable[..., Config], tmp_path: Path) -> None:
    heads: list[torch.Tensor] = []

    class Settling(SourceOnly):
        def settle_head(self, context: Context) -> bool:
            heads.append(self.model.head.get_parameter("weight").detach().clone())
            with torch.no_grad():
                self.model.head.get_parameter("weight").zero_()
            heads.append(self.model.head.get_parameter("weight"))
            return True

    def fail(evaluation: Evaluation) -> dict[str, float]:
        raise Crash

    with pytest.raises(Crash):
        fit(configure(train__max_steps=4, train__evaluate_every=2), tmp_path, Settling, fail)
    before, now = heads
    assert torch.equal(before, now)
    assert before.any()
