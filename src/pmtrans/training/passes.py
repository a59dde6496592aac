"""Passes over whole domains, each made when it is first asked for: under the model as it is between two steps, and over
the target under the backbone before any training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor

from pmtrans.data.domain import Domain
from pmtrans.data.transforms import Preprocessing
from pmtrans.evaluation.passes import Pass, run_pass
from pmtrans.methods.method import Context, SourcePass, TargetPass
from pmtrans.model import Model, logits_of
from pmtrans.processes.group import Processes
from pmtrans.training.build import Task


@dataclass(frozen=True)
class Evaluation:
    """What is known about the model at one moment, without target labels."""

    step: int
    target: Pass
    holdout: Pass | None
    source_sample: Pass | None


@dataclass
class Passes:
    """Kept until the model moves: an evaluation and the pseudo labels of the next step share one."""

    model: Model
    task: Task
    workers: int
    accelerator: Accelerator
    processes: Processes
    untrained: Callable[[], tuple[Model, Preprocessing]] | None = None  # the model before any training, if there is one
    folder: Path | None = None  # of the run: where large passes lie on disk
    _made: dict[str, Pass] = field(default_factory=dict, init=False)
    _untrained_MF: Tensor | None = field(default=None, init=False)  # it does not move: kept to the end

    def forget(self) -> None:
        """The model has moved. One pass over a large domain is gigabytes, so none is kept once it is stale."""
        self._made.clear()

    @contextmanager
    def another_head(self, stays: bool) -> Iterator[None]:
        """The head has moved, the features have not; afterwards the passes are those of before, unless it ``stays``."""
        before, head, was_training = self._made, self.model.head, self.model.head.training
        head.eval()
        with torch.no_grad():
            self._made = {
                name: Pass(made.features_MF, logits_of(head, made.features_MF)) for name, made in before.items()
            }
        head.train(was_training)
        yield
        if not stays:
            self._made = before

    def context(self) -> Context:
        """What a method may ask for between steps."""
        untrained = self.untrained_target if self.untrained is not None else None
        return Context(self.target, self.source, self.source_sample, untrained)

    def target(self) -> TargetPass:
        """The whole target."""
        result = self.over("target", self.task.target)
        return TargetPass(result.features_MF, result.logits_MK)

    def source(self) -> SourcePass:
        """The training part of the source."""
        result = self.over("source", self.task.source.images)
        labels_N = torch.tensor(self.task.source.labels, device=result.logits_MK.device)
        return SourcePass(result.features_MF, result.logits_MK, labels_N)

    def source_sample(self) -> SourcePass:
        """The part of it that every evaluation looks at; all of it where nothing is held out."""
        if not len(self.task.holdout):
            return self.source()
        sample, labels = self.over("source_sample", self.task.source_sample.images), self.task.source_sample.labels
        return SourcePass(sample.features_MF, sample.logits_MK, torch.tensor(labels, device=sample.logits_MK.device))

    def untrained_target(self) -> Tensor:
        """Features_MF of the whole target under the backbone before any training."""
        if self._untrained_MF is None:
            assert self.untrained is not None
            with torch.random.fork_rng(devices=[]):  # a first head is drawn, and thrown away
                model, preprocessing = self.untrained()
            model.to(self.accelerator.device)
            self._untrained_MF = self._make(self.task.target, model, preprocessing).features_MF
        return self._untrained_MF

    def evaluation(self, step: int) -> Evaluation:
        """All that judges may look at."""
        holdout = self.over("holdout", self.task.holdout.images) if len(self.task.holdout) else None
        sample = self.over("source_sample", self.task.source_sample.images) if holdout is not None else None
        return Evaluation(step, self.over("target", self.task.target), holdout, sample)

    def over(self, name: str, domain: Domain) -> Pass:
        """One made before, or a new one."""
        if name not in self._made:
            self._made[name] = self._make(domain, self.model, self.task.preprocessing)
        return self._made[name]

    def _make(self, domain: Domain, model: Model, preprocessing: Preprocessing) -> Pass:
        """Each process has a part of the images; all get the whole."""
        images = len(domain)
        own = run_pass(
            model,
            [domain.paths[place] for place in self.processes.part_of(images)],
            preprocessing,
            max(1, 2 * self.task.batch_size // self.processes.count),
            self.workers,
            self.accelerator.autocast,
            self.task.cache,
            self.folder,
        )
        return Pass(*(self.processes.gather(rows, images) for rows in (own.features_MF, own.logits_MK)))
