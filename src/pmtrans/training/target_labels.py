"""Labels of a few target images in a run: what is written down of them, and what they brought.

What they brought is measured on the labels that were kept: by the probe, fitted with and without them, and, where the
run started from one without labels (``--from``), by that run's answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from pmtrans.data.domain import Domain
from pmtrans.data.domains import Data
from pmtrans.data.reading.target_labels import own_names
from pmtrans.errors import RunError, UserError, one_line
from pmtrans.evaluation.kept_labels import KeptLabels, share_right, with_interval
from pmtrans.files import write_json
from pmtrans.run.folder import RunFolder
from pmtrans.selection.evidence import read_evidence
from pmtrans.texts import TextError, read_json


def record_labels(folder: RunFolder, data: Data) -> None:
    """Which images train with a label, which are kept, and which belong to no known class."""
    labels = data.target_labels
    if labels is not None:
        parts: dict[str, Domain] = {"trained": labels.trained.images, "kept": labels.kept.images}
        parts |= {"unknown": labels.unknown} if len(labels.unknown) else {}
        write_json(folder.target_labels, {name: list(own_names(part)) for name, part in parts.items()})


def remember_before_labels(donor: Path, folder: RunFolder, data: Data) -> None:
    """What the run that this one starts from answers for the kept images; it must not have trained on their labels."""
    if data.target_labels is None or folder.before_labels.is_file():
        return
    run, kept = RunFolder(donor), data.target_labels.kept
    trained = trained_names(run)
    if seen := [name for name in own_names(kept) if name in trained]:
        raise RunError(
            f"--from {one_line(donor)!r} was trained on the labels of {len(seen)} images that this run keeps for "
            f"measuring, such as {one_line(seen[0])}: take the run before it, or data.target_labels_kept=0."
        )
    try:
        logits_MK = read_evidence(run.evidence).target_logits_MK
    except (OSError, SafetensorError, TypeError, UserError):
        return  # nothing to compare with: of an unfinished run, or one without a hold-out
    if len(kept) and len(logits_MK) == len(data.target.domain) and not trained:
        answers = KeptLabels(kept, data.target.domain).predicted(logits_MK)
        write_json(folder.before_labels, {"run": donor.resolve().name, "predicted": answers})


def describe_labels(
    data: Data, folder: RunFolder, measured: dict[str, float | None], taken_over: dict[str, Any]
) -> dict[str, Any] | None:
    """For the summary; ``measured``: accuracy on the kept labels by model; ``taken_over``: those of another run."""
    labels = data.target_labels
    if labels is None:
        return None
    count = len(labels.kept)
    return {
        "trained": len(labels.trained),
        "kept": count,
        **({"unknown": len(labels.unknown)} if len(labels.unknown) else {}),
        "level": 0.95,
        "accuracy": {name: with_interval(value, count) for name, value in measured.items()},
        "taken_over": taken_over,
        "before": _before(folder, data),
    }


def _before(folder: RunFolder, data: Data) -> dict[str, Any] | None:
    """The run that this one started from, on the same kept images."""
    assert data.target_labels is not None
    kept = data.target_labels.kept
    if not len(kept):
        return None
    try:
        stored = read_json(folder.before_labels, dict[str, Any])
        accuracy = share_right(stored["predicted"], kept.labels)
        return {"run": str(stored["run"]), **(with_interval(accuracy, len(kept)) or {})}
    except (OSError, TextError, KeyError, TypeError, ValueError):
        return None


def trained_names(run: RunFolder) -> set[str]:
    """The target images whose labels trained a run."""
    try:
        return set(read_json(run.target_labels, dict[str, list[str]])["trained"])
    except (OSError, TextError, KeyError):
        return set()
