"""Where the adaptation begins (``train.start``).

``average`` is the mean of the weights before and after the source stage (Wortsman et al., Robust fine-tuning of
zero-shot models, CVPR 2022). Fine-tuning on the source learns its classes and forgets some of what the pretrained
backbone knows of other domains; half-way both are kept. That is for a target far from the source, where the source-only
classifier lags behind the clusters of its own features; and only if no ridge of the loss lies between the two, which
held-out source images tell.
"""

from __future__ import annotations

import torch

from pmtrans.config import Config
from pmtrans.pseudo_labels import LAGS, cluster_agreement
from pmtrans.run.folder import RunFolder
from pmtrans.selection.validators.source_accuracy import source_accuracy
from pmtrans.training.build import Weights
from pmtrans.training.finished import Finished
from pmtrans.training.session import Session
from pmtrans.training.untrained import open_model

INSTEAD = "the method starts where the source stage ended"
RIDGE = 0.05  # of held-out accuracy: means without a ridge lost 0.017 at most (A2W)


def first_weights(config: Config, folder: RunFolder, session: Session, source_only: Finished | None) -> Weights | None:
    """What the method starts from; None: the pretrained backbone and a random head.

    ``source_only``: what came of the source stage, which the main process knows.
    """
    start = config.train.start
    if start == "pretrained":
        return None
    if start == "probe" or config.method["name"] == "source_only":
        return session.weights_of(folder.probe)
    if start == "adapted":
        return session.weights_of(folder.first)
    trained = session.weights_of(folder.baseline)
    if start == "source":
        return trained
    agreement = session.processes.on_main(lambda: _agreement(source_only))
    found = f"the source-only classifier agrees with its clusters on {agreement:.0%} of the target"
    if agreement >= LAGS:
        session.reporter.note(f"Start: the end of the source stage, as {found}.")
        return trained
    mean = average(session.weights_of(folder.probe), trained)
    if not _is_as_good(mean, config, folder, session, source_only):
        return trained
    session.reporter.note(f"Start: half-way between probe and source-only model, as {found} (below {LAGS:.0%}).")
    return mean


def _agreement(source_only: Finished | None) -> float:
    """Of the source-only classifier with the clusters of the target; none where there is nothing to see it by."""
    evidence = source_only.evidence if source_only is not None else None
    if evidence is None:
        return 0.0
    return float(cluster_agreement(evidence.target_features_MD, evidence.target_logits_MK))


def average(before: Weights, after: Weights, share: float = 0.5) -> Weights:
    """The mean of two models, name by name, with ``share`` of ``after``; what is not a real number is all its own."""
    return {
        name: torch.lerp(before[name], tensor, share) if tensor.is_floating_point() else tensor
        for name, tensor in after.items()
    }


def _is_as_good(
    mean: Weights, config: Config, folder: RunFolder, session: Session, source_only: Finished | None
) -> bool:
    """Whether the mean knows the held-out source about as well as the source-only model; without any, it is not."""
    holdout = session.data.holdout
    if not len(holdout):
        session.reporter.warn(f"no source is held out to check an average with: {INSTEAD}")
        return False
    _, _, passes = open_model(config, folder, session, mean)
    predicted = passes.over("holdout", holdout.images).logits_MK.argmax(1).cpu()
    found = (predicted == torch.tensor(holdout.labels)).double().mean().item()
    known = session.processes.on_main(lambda: _held_out_accuracy(source_only))
    if found >= known - RIDGE:
        return True
    session.reporter.warn(
        f"the mean of the weights before and after the source stage is right on {found:.1%} of the held-out source, "
        f"the source-only model on {known:.1%}: {INSTEAD}"
    )
    return False


def _held_out_accuracy(source_only: Finished | None) -> float:
    assert source_only is not None, "the main process knows it"
    assert source_only.evidence is not None, "there are held-out images"
    return source_accuracy(source_only.evidence)
