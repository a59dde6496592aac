"""Stages in which nothing is trained: a model is evaluated on this run's data and written down."""

from __future__ import annotations

import time
from typing import Any

from pmtrans.config import Config
from pmtrans.evaluation.kept_labels import KeptLabels
from pmtrans.evaluation.oracle import Oracle
from pmtrans.evaluation.per_source import per_source_accuracy
from pmtrans.run.folder import RunFolder
from pmtrans.run.model_folder import TrainedModel
from pmtrans.selection.judge import evidence_of
from pmtrans.training.accelerator import create_accelerator
from pmtrans.training.build import Task, Weights, build_model, build_task
from pmtrans.training.finished import Finished, write_finished
from pmtrans.training.passes import Evaluation, Passes
from pmtrans.training.records import as_numbers
from pmtrans.training.session import Session


def evaluate_adopted(title: str, config: Config, folder: RunFolder, session: Session) -> Finished | None:
    """A model that another run trained, evaluated on this run's target. Only the main process gets what came of it."""
    begin = time.monotonic()
    trained, task, passes = open_model(config, folder, session, session.weights_of(folder))
    evaluation = passes.evaluation(0)
    if not session.processes.is_main:
        return None
    entry = observe(evaluation, session, title)
    return write_down(config, folder, session, (trained, task), evaluation, entry, begin, "taken over from another run")


def open_model(
    config: Config, folder: RunFolder, session: Session, start: Weights | None
) -> tuple[TrainedModel, Task, Passes]:
    """A model, and the passes over the data under it; ``folder`` is that of the stage."""
    processes, accelerator = session.processes, create_accelerator(config.train.precision, config.train.device)
    trained = processes.together(lambda: build_model(config, session.data, start))
    task = build_task(config, session.data, trained.preprocessing, session.reporter)
    trained.model.to(accelerator.device)
    return trained, task, Passes(trained.model, task, config.data.workers, accelerator, processes, folder=folder.path)


def observe(evaluation: Evaluation, session: Session, title: str) -> dict[str, Any]:
    """What the oracle sees, where the target has labels, and accuracies on several sources and on kept labels."""
    target = session.data.target
    values = Oracle(target, session.reporter, title)(evaluation) if target.labelled is not None else {}
    if evaluation.holdout is not None:
        values |= per_source_accuracy(session.data.holdout, evaluation.holdout.logits_MK)
    if session.data.target_labels is not None:
        values |= KeptLabels(session.data.target_labels.kept, target.domain).accuracy(evaluation.target.logits_MK)
    return {"step": evaluation.step, **as_numbers(values)}


def write_down(
    config: Config,
    folder: RunFolder,
    session: Session,
    model: tuple[TrainedModel, Task],
    evaluation: Evaluation,
    entry: dict[str, Any],
    begin: float,
    explanation: str,
) -> Finished:
    """The stage as finished; ``begin`` is when it began, on the monotonic clock."""
    labels = session.data.holdout.labels
    evidence = evidence_of(evaluation, labels) if evaluation.holdout is not None else None
    seconds = time.monotonic() - begin
    finished = Finished(0, seconds, entry.get("oracle_accuracy"), [entry], explanation, evidence)
    folder.path.mkdir(exist_ok=True)
    write_finished(folder, finished, model[0], config, model[1])
    return finished
