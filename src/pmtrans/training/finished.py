"""A finished stage: ``finished.json``, its model and its evidence. It is not done again when the run is resumed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field
from safetensors import SafetensorError

from pmtrans.config import Config
from pmtrans.files import checksum_of, write_atomically, write_json
from pmtrans.run.folder import RunFolder, unreadable
from pmtrans.run.model_card import describe_training
from pmtrans.run.model_folder import TrainedModel, save_model
from pmtrans.selection.calibration import cautious_temperature
from pmtrans.selection.evidence import Evidence, read_evidence, write_evidence
from pmtrans.texts import Count, Fraction, Seconds, TextError, checked, like, read_json
from pmtrans.training.build import Task


@dataclass(frozen=True)
class _Evaluated:
    """What every evaluation has."""

    step: Count


@dataclass(frozen=True)
class Stored:
    """``finished.json``."""

    step: Count
    seconds: Seconds
    accuracy: Fraction | None
    evaluations: Annotated[list[Annotated[dict[str, Any], like(_Evaluated)]], Field(min_length=1)]
    explanation: str
    evidence: bool
    memory: Count | None = None  # runs of earlier versions have not measured it


@dataclass(frozen=True)
class Finished:
    """What the model of one stage is worth, with and without target labels."""

    step: int
    seconds: float
    accuracy: float | None  # of the chosen evaluation; oracle
    evaluations: list[dict[str, Any]]
    explanation: str
    evidence: Evidence | None
    memory: int | None = None  # bytes at the peak of the training, in the main process, above those before it

    @property
    def chosen(self) -> dict[str, Any]:
        """The evaluation of the model that was chosen."""
        return next(entry for entry in self.evaluations if entry["step"] == self.step)


def write_finished(folder: RunFolder, finished: Finished, trained: TrainedModel, config: Config, task: Task) -> None:
    """The model and the evidence first: where ``finished.json`` is, everything is."""
    evidence, temperature = finished.evidence, trained.temperature
    if evidence is not None:
        if config.data.given is None:  # labels of a given model calibrate nothing
            temperature = cautious_temperature(evidence.source_logits_NK, evidence.source_labels_N)
        write_atomically(folder.evidence, lambda path: write_evidence(path, evidence))
    card = describe_training(config, task.source.images, task.target, finished.chosen)
    save_model(folder.model, replace(trained, temperature=temperature), card)
    stored = {**vars(finished), "evidence": evidence is not None}
    write_json(folder.finished, {**stored, "checksum": _checksum(folder, stored)})
    shutil.rmtree(folder.candidates, ignore_errors=True)  # not needed any more, now that this is written


def read_finished(folder: RunFolder) -> Finished | None:
    """What ``write_finished`` wrote; None: there is more to do, or it was changed."""
    try:
        content = read_json(folder.finished, dict[str, Any])
        expected = content.pop("checksum", None)  # a run of an earlier version has none
        stored: Stored = checked(content, Stored)
        if expected is not None and expected != _checksum(folder, content):
            return None
        evidence = read_evidence(folder.evidence) if stored.evidence else None
        if not any(entry.get("step") == stored.step for entry in stored.evaluations):
            return None
        return Finished(**{**vars(stored), "evidence": evidence})
    except (OSError, TypeError, ValueError, KeyError, AttributeError, SafetensorError):
        return None


def read_stored(folder: RunFolder) -> Stored:
    """The numbers alone of a finished stage: how long it took, and its evaluations."""
    try:
        stored: Stored = read_json(folder.finished, Stored)
        return stored
    except (OSError, TextError) as error:
        raise unreadable(folder.finished, folder, error) from None


def _checksum(folder: RunFolder, content: dict[str, Any]) -> str:
    """Of all that the conclusion reads: numbers and evidence."""
    return checksum_of(content, *([folder.evidence] if content["evidence"] else []))
