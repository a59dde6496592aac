"""Passes over whole domains, each made when it is first asked for: under the model as it is between two steps, and over
the target under the backbone before any training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from pmtrans.data.domain import Domain, sample_domain
from pmtrans.data.transforms import Preprocessing
from pmtrans.evaluation.linear_probe import fit_probe
from pmtrans.evaluation.passes import Pass, run_pass
from pmtrans.methods.method import Context, SecondView, SourcePass, TargetPass
from pmtrans.methods.parts.head_alignment import known_rows
from pmtrans.model import Model, logits_of
from pmtrans.processes.group import Processes
from pmtrans.training.build import Task

MOST_SOURCE = 10_000  # images that the classifier of the second view is fitted on


@dataclass(frozen=True)
class Evaluation:
    """What is known about the model at one moment, without target labels."""

    step: int
    target: Pass
    holdout: Pass | None
    source_sample: Pass | None
    ground: tuple[Tensor, Tensor] | None = None  # features of larger images: of the held-out source, and of the target


@dataclass
class Passes:
    """Kept until the model moves: an evaluation and the pseudo labels of the next step share one."""

    model: Model
    task: Task
    workers: int | None
    accelerator: Accelerator
    processes: Processes
    untrained: Callable[[], tuple[Model, Preprocessing]] | None = None  # the model before any training, if there is one
    folder: Path | None = None  # of the run: where large passes lie on disk
    seen_larger: Tensor | None = None  # features of the target in the second view's size, where they are known
    _made: dict[str, Pass] = field(default_factory=dict, init=False)
    _second_view: SecondView | None = field(default=None, init=False)  # it does not move: kept to the end

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
        second_view = self.second_view if self.untrained is not None else None
        return Context(self.target, self.source, self.source_sample, second_view)

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

    @torch.no_grad()
    def second_view(self, pinned_M: Tensor | None = None) -> SecondView:
        """The whole target under the backbone before any training, and a classifier on it where it sees more.

        ``pinned_M``: known labels of the target, -1 elsewhere.
        """
        if self._second_view is None:
            assert self.untrained is not None
            with torch.random.fork_rng(devices=[]):  # a first head is drawn, and thrown away
                model, preprocessing = self.untrained()
            model.to(self.accelerator.device)
            logits_MK = None
            if self.seen_larger is None:
                features_MF = self._make(self.task.target, model, preprocessing).features_MF
            else:
                features_MF = self.seen_larger.to(self.accelerator.device)
            if preprocessing.image_size > self.task.preprocessing.image_size:
                logits_MK = logits_of(self._fit_probe(model, preprocessing, features_MF, pinned_M), features_MF)
            self._second_view = SecondView(features_MF, logits_MK)
        return self._second_view

    @torch.no_grad()
    def ground(self, untrained: tuple[Model, Preprocessing]) -> tuple[Tensor, Tensor]:
        """Held-out source and target under the backbone before any training, in larger images."""
        model, preprocessing = untrained
        model.to(self.accelerator.device)
        holdout_NF, target_MF = (
            self._make(domain, model, preprocessing).features_MF
            for domain in (self.task.holdout.images, self.task.target)
        )
        return holdout_NF, target_MF

    @torch.enable_grad()
    def _fit_probe(
        self, model: Model, preprocessing: Preprocessing, target_MF: Tensor, pinned_M: Tensor | None
    ) -> nn.Module:
        """A linear classifier on the features of ``model``, of the source and of the target's known labels."""
        source, holdout = sample_domain(self.task.source, MOST_SOURCE, 0), self.task.holdout
        features_NF = self._make(source.images, model, preprocessing).features_MF
        held_MF = self._make(holdout.images, model, preprocessing).features_MF if len(holdout) else features_NF[:0]
        labels_N, held_labels_M = (
            torch.tensor(one.labels, dtype=torch.long, device=features_NF.device) for one in (source, holdout)
        )
        if pinned_M is not None:
            known = known_rows(pinned_M, len(labels_N))
            features_NF = torch.cat([features_NF, target_MF[known].to(features_NF.dtype)])
            labels_N = torch.cat([labels_N, pinned_M[known].to(labels_N.device)])
        head = nn.Linear(features_NF.shape[1], model.classes)
        return fit_probe(head, features_NF, labels_N, held_MF, held_labels_M, 0).head

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
