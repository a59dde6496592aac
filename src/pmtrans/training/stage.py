"""One training stage: a method from its last whole checkpoint on, to a model that no target label chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from pmtrans.backbones.lora import merge_adapters, merged_state
from pmtrans.config import Config
from pmtrans.data.domain import LabelledDomain
from pmtrans.data.transforms import Preprocessing
from pmtrans.errors import RunError, one_line
from pmtrans.evaluation.kept_labels import KeptLabels
from pmtrans.evaluation.oracle import Oracle
from pmtrans.evaluation.per_source import per_source_accuracy
from pmtrans.machine import begin_peak, peak_memory
from pmtrans.methods import METHODS
from pmtrans.model import Model
from pmtrans.processes.group import Processes
from pmtrans.run.folder import RunFolder
from pmtrans.selection.evidence import MANY_CLASSES, MOST_TARGET, Evidence, even_sample
from pmtrans.selection.judge import Judge, Judged, evidence_of
from pmtrans.selection.moved import choose_moved
from pmtrans.selection.rule import choose
from pmtrans.training.accelerator import create_accelerator
from pmtrans.training.build import Task, Weights, build, build_untrained, second_view_size
from pmtrans.training.checkpoint import Snapshot
from pmtrans.training.finished import Finished, write_finished
from pmtrans.training.loop import Loop, Observer
from pmtrans.training.old_places import OldPlaces
from pmtrans.training.passes import Evaluation, Passes
from pmtrans.training.resume import last_snapshot
from pmtrans.training.session import Session
from pmtrans.training.situation import absent_classes
from pmtrans.training.untrained import evaluate_adopted


def train_stage(
    title: str,
    config: Config,
    folder: RunFolder,
    session: Session,
    start: Weights | None = None,
    baseline: Evidence | None = None,
    has_second_view: bool = False,
) -> Finished | None:
    """One method, resumed from its last checkpoint; not again if it is finished. Only the main process gets it.

    ``start``: weights to begin with; None: the pretrained backbone and a random head. ``baseline``: what the judge
    compares with. ``has_second_view``: whether the method may look at the target under the untrained backbone too.
    """
    reporter, processes = session.reporter, session.processes
    is_done, done = session.finished(title, folder)
    if is_done:
        return done
    if session.is_adopted(folder):
        return evaluate_adopted(title, config, folder, session)

    # model, method, and the checkpoint to resume from
    accelerator = create_accelerator(config.train.precision, config.train.device)
    before = begin_peak(accelerator.device)
    method, task, trained = processes.together(lambda: build(config, session.data, reporter, start))
    processes.together(lambda: processes.check_batch(task.batch_size))
    size = second_view_size(config, method.model)
    seen = _seen_larger(config, baseline, task, size, processes) if has_second_view else None
    untrained = partial(_untrained, config, session, size, seen is not None) if has_second_view else None
    passes = Passes(method.evaluated, task, config.data.workers, accelerator, processes, untrained, folder.path, seen)
    snapshot = processes.on_main(lambda: last_snapshot(folder.path, reporter), Snapshot, Judged)
    loop = Loop(
        title, method, task, config, folder.path, accelerator, passes, reporter, session.stop, processes, snapshot
    )
    if snapshot is not None:
        reporter.note(f"Resuming {title} from step {snapshot.step} of {loop.steps}.")

    # train, judged by the main process
    judge = _judge(loop, session, baseline) if processes.is_main and len(session.data.holdout) else None
    loop.fit(_observers(loop, session, judge) if processes.is_main else ())
    if loop.step < loop.steps:
        reporter.note(f"{title} ends at step {loop.step} of {loop.steps}: the time is over.")
    final = loop.evaluation()  # in all processes, each has a part; made already unless a run was interrupted here
    if not processes.is_main:
        return None

    # the model that the judge chose; a baseline is what it is at its end
    trained = replace(trained, model=loop.whole.evaluated)
    merge_adapters(trained.model)
    count = len(loop.evaluations)
    step, explanation, evidence = loop.step, f"Evaluation {count} of {count}: the last step.", None
    if judge is not None and config.method["name"] != "source_only":
        step, explanation, weights, evidence = judge.select()
        _put(weights, trained.model, step)
    elif judge is not None:
        evidence = evidence_of(final, session.data.holdout.labels)
    chosen = next(entry for entry in loop.evaluations if entry["step"] == step)
    memory = max(0, peak_memory(accelerator.device) - before)
    accuracy, evaluations = chosen.get("oracle_accuracy"), loop.evaluations
    finished = Finished(step, loop.seconds, accuracy, evaluations, explanation, evidence, memory)
    write_finished(folder, finished, trained, config, task)
    return finished


def _seen_larger(
    config: Config, baseline: Evidence | None, task: Task, size: int, processes: Processes
) -> Tensor | None:
    """The pass over the target that the second ground has made; several processes make their own."""
    if processes.count > 1 or baseline is None or size == config.data.image_size:
        return None
    ground = baseline.target_ground_MG
    return ground if ground is not None and len(ground) == len(task.target) else None


def _untrained(config: Config, session: Session, size: int, is_target_seen: bool) -> tuple[Model, Preprocessing]:
    """For the second view; where it sees more, the passes take a while."""
    if size > config.data.image_size:
        domains = "the source" if is_target_seen else "both domains"
        session.reporter.note(f"Second view: one pass over {domains} with the untrained backbone at {size} px.")
    return build_untrained(config, session.data, size)


def _put(weights: Weights, model: Model, step: int) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise RunError(
            f"The selected model of step {step} does not fit the model of this run ({one_line(error, 150)}): "
            "train again with --overwrite."
        ) from None


def _judge(loop: Loop, session: Session, baseline: Evidence | None) -> Judge:
    count = len(session.data.source.classes)
    if count > MANY_CLASSES:
        loop.reporter.warn(
            f"{count} classes: validators that fit or cluster are left out, the others look at an even sample of "
            f"{len(even_sample(len(session.data.target.domain), count))} target images"
        )
    images = len(session.data.target.domain)
    if images > MOST_TARGET:
        loop.reporter.note(
            f"{images} target images: scores and estimates look at an even sample of {MOST_TARGET}, on which a share "
            "is exact to 0.3 points (95 %)."
        )
    return Judge(
        folder=RunFolder(loop.folder).candidates,
        holdout_labels=session.data.holdout.labels,
        classes=session.data.source.classes,
        weights=partial(merged_state, loop.whole.evaluated),
        warn=loop.reporter.warn,
        baseline=baseline,
        keep=loop.config.selection.keep,
        history=loop.judged,
        absent_K=absent_classes(loop.config, baseline),
        rule=choose if session.data.given is None else choose_moved,
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
    if session.data.holdout.sources:
        observers.append(partial(_observe_sources, session.data.holdout))
    if session.data.target_labels is not None:
        kept = KeptLabels(session.data.target_labels.kept, session.data.target.domain)
        observers.append(lambda evaluation: kept.accuracy(evaluation.target.logits_MK))
    if session.data.target.labelled is not None:
        observers.append(Oracle(session.data.target, loop.reporter, loop.title))
    if session.old:
        autocast = loop.accelerator.autocast
        model, workers = loop.whole.evaluated, config.data.workers
        observers.append(OldPlaces(session.old, model, loop.task, workers, loop.reporter, autocast))
    return observers


def _observe_sources(holdout: LabelledDomain, evaluation: Evaluation) -> dict[str, Any]:
    """The accuracy on the held-out part of each of several sources."""
    return {} if evaluation.holdout is None else dict(per_source_accuracy(holdout, evaluation.holdout.logits_MK))
