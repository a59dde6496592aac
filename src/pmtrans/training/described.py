"""What ``summary.json`` says of the data of a run beyond its two domains: several sources, target labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pmtrans.data.domains import Data
from pmtrans.evaluation.kept_labels import NAME, KeptLabels
from pmtrans.evaluation.per_source import PREFIX
from pmtrans.run.folder import RunFolder
from pmtrans.texts import read_json
from pmtrans.training.finished import Finished
from pmtrans.training.target_labels import describe_labels

Stages = Mapping[str, Finished | None]  # probe, source_only, adapted


def describe_data(data: Data, folder: RunFolder, stages: Stages) -> dict[str, Any]:
    """Further fields of the summary."""
    measured = {name: _on_kept(data, stage) for name, stage in stages.items()}
    labels = describe_labels(data, folder, measured, _taken_over(folder, stages))
    probe = stages.get("probe")
    if labels is not None and probe is not None:
        labels["probe_without"] = probe.chosen.get("without_target_labels")
    return {"sources": describe_sources(data, stages), "target_labels": labels}


def _on_kept(data: Data, stage: Finished | None) -> float | None:
    """Accuracy on the kept labels; a stage that another run evaluated has it in its evidence."""
    if stage is None or data.target_labels is None:
        return None
    found: float | None = stage.chosen.get(NAME)
    if found is None and stage.evidence is not None:
        logits_MK, target = stage.evidence.target_logits_MK, data.target.domain
        if len(logits_MK) == len(target):  # evidence holds a sample of a large target
            return KeptLabels(data.target_labels.kept, target).accuracy(logits_MK).get(NAME)
    return found


def _taken_over(folder: RunFolder, stages: Stages) -> dict[str, Any]:
    """The models that come from another run: its name, and how many target labels trained them there."""
    places = {"probe": folder.probe}
    if stages.get("source_only") is not stages.get("adapted") and not folder.continued.finished.is_file():
        places["source_only"] = folder.baseline
    found = {}
    for name, place in places.items():
        if stages.get(name) is not None and place.origin.is_file():
            origin = read_json(place.origin, dict[str, Any])
            found[name] = {"run": str(origin.get("run")), "trained": int(origin.get("target_labels", 0))}
    return found


def describe_sources(data: Data, stages: Stages) -> dict[str, Any] | None:
    """Of each source its images, the held-out accuracy of each model, and what it contributes; None: there is one."""
    if not data.source.sources:
        return None
    probe = stages.get("probe")
    contributions = probe.chosen.get("source_contributions", {}) if probe is not None else {}
    return {
        name: {
            "images": data.source.origins.count(number),
            "held_out": data.holdout.origins.count(number),
            "accuracy": {
                title: stage.chosen.get(PREFIX + name) if stage is not None else None for title, stage in stages.items()
            },
            "contribution": contributions.get(name),
        }
        for number, name in enumerate(data.source.sources)
    }
