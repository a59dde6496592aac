"""One stage of a run: a method trained from its last whole checkpoint on, to a model that no target label chose.

``finished.json`` says that a stage is done and its model saved: it is not trained again when the run is resumed.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pmtrans.config import Config
from pmtrans.data.domains import Data
from pmtrans.evaluation.oracle import Oracle
from pmtrans.files import new_folder, read_json, write_atomically, write_json
from pmtrans.methods import METHODS
from pmtrans.processes.group import Processes
from pmtrans.progress import Reporter
from pmtrans.run.folder import RunFolder
from pmtrans.run.model_card import describe_training
from pmtrans.run.model_folder import TrainedModel, save_model
from pmtrans.selection.calibration import fit_temperature
from pmtrans.selection.evidence import Evidence, read_evidence, write_evidence
from pmtrans.selection.judge import Judge
from pmtrans.signals import StopRequest
from pmtrans.training.accelerator import create_accelerator
from pmtrans.training.build import build
from pmtrans.training.loop import Loop, Observer
from pmtrans.training.passes import Evaluation, Passes
from pmtrans.training.resume import last_snapshot


@dataclass(frozen=True)
class Session:
    """What all stages of a run share: the data, and how this process talks, stops and agrees with the others."""

    data: Data
    reporter: Reporter
    stop: StopRequest
    processes: Processes


@dataclass(frozen=True)
class Trained:
    """One finished stage: what its model is worth, with and without target labels."""

    step: int
    seconds: float
    accuracy: float | None  # of the chosen evaluation; oracle
    evaluations: list[dict[str, Any]]
    explanation: str
    evidence: Evidence | None


def train_stage(
    title: str, config: Config, folder: Path, session: Session, baseline: Evidence | None = None
) -> Trained | None:
    """One method, resumed from its last checkpoint; not again if it is finished. Only the main process gets it."""
    reporter, processes = session.reporter, session.processes
    done = read_finished(folder) if processes.is_main else None
    if processes.highest(done is not None):
        if done is not None:
            reporter.note(f"{title.capitalize()} is trained already.")
            shutil.rmtree(RunFolder(folder).candidates, ignore_errors=True)
        return done

    # model, method, and the checkpoint to resume from
    accelerator = create_accelerator(config.train.precision)
    method, task, trained = processes.together(lambda: build(config, session.data, reporter))
    processes.together(lambda: processes.check_batch(task.batch_size))
    passes = Passes(method.evaluated, task, config.data.workers, accelerator, processes)
    snapshot = processes.on_main(lambda: last_snapshot(folder, reporter))
    loop = Loop(title, method, task, config, folder, accelerator, passes, reporter, session.stop, processes, snapshot)
    if snapshot is not None:
        reporter.note(f"Resuming {title} from step {snapshot.step} of {loop.steps}.")

    # train, judged by the main process
    judge = _judge(loop, session, baseline) if processes.is_main and len(session.data.holdout) else None
    loop.fit(_observers(loop, session, judge) if processes.is_main else ())
    final = loop.evaluation()  # in all processes, each has a part; made already unless a run was cut short here
    if not processes.is_main:
        return None
    is_baseline = config.method["name"] == "source_only"
    return _finish(loop, judge, replace(trained, model=loop.whole.evaluated), final if is_baseline else None)


def _judge(loop: Loop, session: Session, baseline: Evidence | None) -> Judge:
    return Judge(
        folder=RunFolder(loop.folder).candidates,
        holdout_labels=session.data.holdout.labels,
        classes=session.data.source.classes,
        weights=loop.whole.evaluated.state_dict,
        warn=loop.reporter.warn,
        baseline=baseline,
        keep=loop.config.selection.keep,
        history=loop.evaluations,
    )


def _observers(loop: Loop, session: Session, judge: Judge | None) -> Sequence[Observer]:
    """Who looks on at each evaluation: the judge, the game, and the oracle where there are labels."""
    config, observers = loop.config, list[Observer]()
    if judge is not None:
        observers.append(judge)
        observe = METHODS[config.method["name"]].observe
        game = None
        if config.selection.game and observe is not None:
            game = observe(loop.whole, loop.task, config.seed, config.train.learning_rate)
        observers += [game] if game is not None else []
    if session.data.target.labelled is not None:
        observers.append(Oracle(session.data.target, loop.reporter, loop.title))
    return observers


def _finish(loop: Loop, judge: Judge | None, trained: TrainedModel, final: Evaluation | None) -> Trained:
    """Write the model that the judge chose; a baseline is what it is at its end, as ``final`` shows it."""
    step, explanation, evidence, temperature = loop.steps, "the last step", None, 1.0
    if judge is not None and final is None:
        step, explanation, weights, evidence = judge.select()
        trained.model.load_state_dict(weights)
    elif judge is not None and final is not None:
        evidence = judge.evidence(final)
    if evidence is not None:
        temperature = fit_temperature(evidence.source_logits_NK, evidence.source_labels_N)
    chosen = next(entry for entry in loop.evaluations if entry["step"] == step)
    card = describe_training(loop.config, loop.task.source, loop.task.target, chosen)
    folder = RunFolder(loop.folder)
    save_model(folder.model, replace(trained, temperature=temperature), card)
    done = Trained(step, loop.seconds, chosen.get("oracle_accuracy"), loop.evaluations, explanation, evidence)
    write_finished(folder, done)
    shutil.rmtree(folder.candidates, ignore_errors=True)  # not needed any more, now that this is written down
    return done


def write_finished(folder: RunFolder, trained: Trained) -> None:
    """The evidence first: where ``finished.json`` is, everything is."""
    evidence = trained.evidence
    if evidence is not None:
        write_atomically(folder.evidence, lambda path: write_evidence(path, evidence))
    write_json(folder.finished, {**vars(trained), "evidence": evidence is not None})


def read_finished(path: Path) -> Trained | None:
    """What ``write_finished`` wrote; None: there is more to do."""
    folder = RunFolder(path)
    try:
        stored = read_json(folder.finished)
        evidence = read_evidence(folder.evidence) if stored.pop("evidence") else None
        return Trained(**stored, evidence=evidence)
    except (OSError, TypeError, ValueError, KeyError, AttributeError, SafetensorError):
        return None


def adopt_finished(donor: RunFolder, path: Path) -> None:
    """Take over a finished stage that had the same configuration, data and seed; not twice, and never half."""
    if RunFolder(path).finished.is_file():
        return
    with new_folder(path) as temporary:
        for file in (donor.finished, donor.evidence, donor.metrics):
            if file.is_file():  # no evidence without a hold-out
                shutil.copyfile(file, temporary / file.name)
        shutil.copytree(donor.model, temporary / donor.model.name)
