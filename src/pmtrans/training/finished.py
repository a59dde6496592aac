"""``finished.json``: a training that is done, its model saved. It is not trained again when the run goes on."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pmtrans.run.files import new_folder, read_json, write_atomically, write_json
from pmtrans.run.folder import RunFolder
from pmtrans.selection.evidence import Evidence
from pmtrans.selection.judge import read_evidence, write_evidence


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
