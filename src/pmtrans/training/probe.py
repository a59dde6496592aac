"""The first stage: a linear classifier on the features of the untrained backbone, and its k-means labels.

Seconds of work: what a user could have without adaptation, the first head of the source stage, and, by its features,
the neutral ground on which later models are compared.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pmtrans.config import Config
from pmtrans.evaluation.folds import FOLDS
from pmtrans.evaluation.kept_labels import KeptLabels
from pmtrans.evaluation.linear_probe import LinearProbe, fit_probe
from pmtrans.evaluation.oracle import Oracle
from pmtrans.evaluation.passes import Pass
from pmtrans.large_rows import rows_beside
from pmtrans.methods.method import SourcePass
from pmtrans.model import Model, logits_of
from pmtrans.pseudo_labels import kmeans_pseudo_labels
from pmtrans.run.folder import RunFolder
from pmtrans.training.build import Task, build_untrained, ground_size
from pmtrans.training.contributions import Measure, describe_head, refit, source_contributions, weighed_rows
from pmtrans.training.finished import Finished
from pmtrans.training.passes import Evaluation, Passes
from pmtrans.training.session import Session
from pmtrans.training.untrained import observe, open_model, write_down


def probe_stage(config: Config, folder: RunFolder, session: Session) -> Finished | None:
    """Only the main process gets what came of it. A head that was taken over from another run stays as it is."""
    is_done, done = session.finished("linear probe", folder)
    if is_done:
        return done
    begin = time.monotonic()
    session.reporter.note("Linear probe: one pass over both domains with the untrained backbone.")
    config = config.model_copy(update={"method": {**config.method, "name": "linear_probe"}})  # for the model card
    adopted = session.is_adopted(folder)
    trained, task, passes = open_model(config, folder, session, session.weights_of(folder) if adopted else None)
    if not adopted:
        _settle_bottleneck(trained.model, passes, task)
    source = None if adopted else passes.source()
    evaluation, explanation = passes.evaluation(0), "taken over from another run"
    evaluation = replace(evaluation, ground=_second_ground(config, trained.model, passes, session))
    if not session.processes.is_main:
        return None
    if source is not None:
        holdout = evaluation.holdout or Pass(source.features_NF[:0], source.logits_NK[:0])
        labels = torch.tensor(task.holdout.labels, dtype=torch.long, device=source.labels_N.device)
        head = trained.model.head
        rows: Tensor | slice = slice(None)
        if task.target_labels is not None:
            rows = weighed_rows(len(task.own_source), len(source.labels_N), source.labels_N.device)
        features_NF, labels_N = source.features_NF[rows], source.labels_N[rows]
        probe = fit_probe(head, features_NF, labels_N, holdout.features_MF, labels, config.seed)
        head.load_state_dict(probe.head.state_dict())
        evaluation, explanation = _with_head(evaluation, trained.model), _explain(probe)
    entry = {**observe(evaluation, session, "linear probe"), **_observe_kmeans(evaluation, session)}
    if config.selection.source_contributions and session.data.source.sources:
        entry |= _contributions(source, evaluation, trained.model, config.seed, session)
    if source is not None and task.target_labels is not None:
        entry |= _without_labels(source, len(task.own_source), evaluation, trained.model, config.seed, session)
    return write_down(config, folder, session, (trained, task), evaluation, entry, begin, explanation)


def _settle_bottleneck(model: Model, passes: Passes, task: Task) -> None:
    """Statistics of a new bottleneck from a sample of the source, so that the classifier is fitted to what it sees."""
    bottleneck = model.backbone.bottleneck
    if bottleneck is None:
        return
    bottleneck.bare = True
    sample = passes.over("source_sample", task.source_sample.images)
    bottleneck.bare = False
    bottleneck.settle(sample.features_MF)
    passes.forget()


@torch.no_grad()
def _with_head(evaluation: Evaluation, model: Model) -> Evaluation:
    """The same features, and the logits of the model's present head."""
    model.eval()
    target, holdout, sample = (
        None if one is None else Pass(one.features_MF, logits_of(model.head, one.features_MF))
        for one in (evaluation.target, evaluation.holdout, evaluation.source_sample)
    )
    assert target is not None
    return replace(evaluation, target=target, holdout=holdout, source_sample=sample)


def _second_ground(config: Config, model: Model, passes: Passes, session: Session) -> tuple[Tensor, Tensor] | None:
    """On which later models are compared as well: larger images, where the pretrained weights know them."""
    size = ground_size(config, model)
    if size is None or not len(session.data.holdout):
        return None
    session.reporter.note(f"Second ground: one pass over target and held-out source at {size} px.")
    with torch.random.fork_rng(devices=[]):  # a first head is drawn, and thrown away
        untrained = build_untrained(config, session.data, size)
    return passes.ground(untrained)


def _explain(probe: LinearProbe) -> str:
    by = f"regularisation {probe.strength:g}"
    if probe.folds_accuracy is not None:
        return f"{by}, {probe.folds_accuracy:.1%} of the source right by {FOLDS} folds"
    if probe.holdout_accuracy is None:
        return f"{by}, as no source is held out"
    return f"{by}, {probe.holdout_accuracy:.1%} of the held-out source right"


def _observe_kmeans(evaluation: Evaluation, session: Session) -> dict[str, Any]:
    """What the oracle sees of the k-means labels that self-labelling would start from."""
    target = evaluation.target
    labels_M = kmeans_pseudo_labels(target.features_MF, logits_MK=target.logits_MK)
    as_logits_MK = rows_beside(target.features_MF, target.logits_MK.shape[1]).zero_()
    as_logits_MK.scatter_(1, labels_M[:, None], 1.0)
    seen = observe(replace(evaluation, target=Pass(target.features_MF, as_logits_MK)), session, "its k-means labels")
    return {name.replace("oracle_", "oracle_kmeans_"): value for name, value in seen.items() if name != "step"}


def _contributions(
    source: SourcePass | None, evaluation: Evaluation, model: Model, seed: int, session: Session
) -> dict[str, Any]:
    """What the probe loses without each source."""
    if source is None:
        session.reporter.warn("the probe was taken over from another run: what each source contributes is not measured")
        return {}
    data = session.data
    found = source_contributions(source, evaluation, (data.source, data.holdout), model, seed, _measure(session))
    return {"source_contributions": found}


def _without_labels(
    source: SourcePass, images: int, evaluation: Evaluation, model: Model, seed: int, session: Session
) -> dict[str, Any]:
    """The probe without the target labels, to tell what they brought."""
    holdout = session.data.holdout
    places = list(range(len(holdout)))
    head = refit(model, source, list(range(images)), evaluation.holdout, holdout, places, seed)
    return {"without_target_labels": describe_head(head, evaluation, holdout, places, _measure(session))}


def _measure(session: Session) -> Measure:
    """Accuracies on the target where labels are known: all of them, and those that were kept."""
    target, labels = session.data.target, session.data.target_labels
    oracle = Oracle(target, session.reporter, "linear probe") if target.labelled is not None else None
    kept = KeptLabels(labels.kept, target.domain) if labels is not None else None

    def measure(logits_MK: Tensor) -> dict[str, float]:
        found = {} if oracle is None else {"oracle_accuracy": oracle.measure(logits_MK).overall}
        return found if kept is None else {**found, **kept.accuracy(logits_MK)}

    return measure
