"""What a method is told about where in the training it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pmtrans.config import Config
from pmtrans.data.domains import read_data
from pmtrans.methods.method import Context, Moment, Sizes
from pmtrans.methods.source_only import SourceOnly, SourceOnlyOptions
from pmtrans.processes.group import Processes
from pmtrans.progress import Reporter
from pmtrans.signals import StopRequest
from pmtrans.training.accelerator import create_accelerator
from pmtrans.training.build import build
from pmtrans.training.loop import Loop
from pmtrans.training.passes import Passes


def test_a_method_is_told_how_many_images_of_a_domain_went_before(
    configure: Callable[..., Config], tmp_path: Path
) -> None:
    config = configure(train__batch_size=3, train__accumulate=2, train__max_steps=3)
    quiet = Reporter(quiet=True)
    _, task, trained = build(config, read_data(config, quiet), quiet)
    seen: list[int] = []

    class Counting(SourceOnly):
        def before_step(self, moment: Moment, context: Context) -> None:
            seen.append(moment.images_seen)

    sizes = Sizes(trained.model.classes, len(task.source), len(task.target))
    method = Counting(trained.model, SourceOnlyOptions(), sizes)
    accelerator = create_accelerator("fp32")
    passes = Passes(method.evaluated, task, 0, accelerator, Processes())
    Loop("moment", method, task, config, tmp_path, accelerator, passes, quiet, StopRequest()).fit()
    assert seen == [0, 6, 12]
