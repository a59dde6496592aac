"""One method, from its last whole checkpoint on, to the model that was chosen without target labels.

``finished.json``: a training that is done, its model saved. It is not trained again when the run goes on.
"""

from __future__ import annotations

import shutil
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
from pmtrans.training.checkpoint import Snapshot
from pmtrans.training.loop import Loop
from pmtrans.training.passes import Evaluation
from pmtrans.training.resume import last_snapshot


def train_one(
    title: str,
    config: Config,
    folder: Path,
    data: Data,
    reporter: Reporter,
    stop: StopRequest,
    processes: Processes,
    baseline: Evidence | None = None,
) -> Trained | None:
    """One method, from its last whole checkpoint on; not again if it is finished. Only the main process gets it."""
    done = read_finished(folder) if processes.is_main else None
    if processes.highest(done is not None):
        if done is not None:
            reporter.note(f"{title.capitalize()} is trained already.")
            shutil.rmtree(folder / "candidates", ignore_errors=True)
        return done
    accelerator = create_accelerator(config.train.precision)
    method, task, trained = processes.together(lambda: build(config, data, reporter))
    processes.together(lambda: processes.check_batch(task.batch_size))
    loop = Loop(title, method, task, config, folder, accelerator, reporter, stop, processes)
    trained = replace(trained, model=loop.shown.model)
    judge = _observe(loop, data, trained, baseline) if processes.is_main else None
    snapshot = processes.on_main(lambda: _last_snapshot(folder, reporter))
    if snapshot is not None:
        loop.resume(snapshot)
        reporter.note(f"Going on with {title} from step {snapshot.step} of {loop.steps}.")
    if judge is not None:
        judge.history = loop.evaluations
    loop.fit()
    final = loop.evaluation()  # in all processes, each has a part; made already unless a run was cut short here
    keep_last = config.method["name"] == "source_only"
    return _finish(loop, judge, trained, folder, final if keep_last else None) if processes.is_main else None


def _last_snapshot(folder: Path, reporter: Reporter) -> Snapshot | None:
    folder.mkdir(exist_ok=True)
    return last_snapshot(RunFolder(folder).checkpoints, reporter)


def _observe(loop: Loop, data: Data, trained: TrainedModel, baseline: Evidence | None) -> Judge | None:
    """Who looks on at each evaluation: the judge, the game, and the oracle where there are labels."""
    config, warn = loop.config, loop.reporter.warn
    judge = None
    if len(data.holdout):
        labels, classes = data.holdout.labels, data.source.classes
        judge = Judge(loop.folder / "candidates", labels, classes, trained.model.state_dict, warn, baseline)
        judge.keep = config.selection.keep
        loop.observers.append(judge)
        observe = METHODS[config.method["name"]].observe
        if config.selection.game and observe is not None:
            game = observe(loop.shown, loop.task, config.seed, config.train.learning_rate)
            loop.observers += [game] if game is not None else []
    if data.target.labelled is not None:
        loop.observers.append(Oracle(data.target, loop.reporter, loop.title))
    return judge


def _finish(loop: Loop, judge: Judge | None, trained: TrainedModel, folder: Path, final: Evaluation | None) -> Trained:
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
    save_model(folder / "model", replace(trained, temperature=temperature), card)
    done = Trained(step, loop.seconds, chosen.get("oracle_accuracy"), loop.evaluations, explanation, evidence)
    write_finished(folder, done)
    shutil.rmtree(folder / "candidates", ignore_errors=True)  # not needed any more, now that this is written down
    return done


@dataclass(frozen=True)
class Trained:
    """One finished training: what its model is worth, with and without target labels."""

    step: int
    seconds: float
    accuracy: float | None  # of the chosen evaluation; oracle
    evaluations: list[dict[str, Any]]
    explanation: str
    evidence: Evidence | None


def write_finished(folder: Path, trained: Trained) -> None:
    """The evidence first: where ``finished.json`` is, everything is."""
    evidence = trained.evidence
    if evidence is not None:
        write_atomically(folder / "evidence.safetensors", lambda path: write_evidence(path, evidence))
    plain = {**vars(trained), "evidence": evidence is not None}
    write_json(RunFolder(folder).finished, plain)


def read_finished(folder: Path) -> Trained | None:
    """What ``write_finished`` wrote; None: there is more to do."""
    try:
        plain = read_json(RunFolder(folder).finished)
        evidence = read_evidence(folder / "evidence.safetensors") if plain.pop("evidence") else None
        return Trained(**plain, evidence=evidence)
    except (OSError, TypeError, ValueError, KeyError, AttributeError, SafetensorError):
        return None


def adopt_finished(donor: Path, folder: Path) -> None:
    """Take over a finished training that had the same configuration, data and seed; not twice, and never half."""
    if RunFolder(folder).finished.is_file():
        return
    with new_folder(folder) as temporary:
        for name in ("finished.json", "evidence.safetensors", "metrics.jsonl"):
            if (donor / name).is_file():  # no evidence without a hold-out
                shutil.copyfile(donor / name, temporary / name)
        shutil.copytree(donor / "model", temporary / "model")
