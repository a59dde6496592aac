"""What ``summary.json`` says of the data of a run beyond its two domains: several sources, target labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pmtrans.data.domains import Data
from pmtrans.evaluation.kept_labels import NAME
from pmtrans.evaluation.per_source import PREFIX
from pmtrans.run.folder import RunFolder
from pmtrans.training.finished import Finished
from pmtrans.training.target_labels import describe_labels

Stages = Mapping[str, Finished | None]  # probe, source_only, adapted


def describe_data(data: Data, folder: RunFolder, stages: Stages) -> dict[str, Any]:
    """Further fields of the summary."""
    measured = {name: stage.chosen.get(NAME) if stage is not None else None for name, stage in stages.items()}
    labels = describe_labels(data, folder, measured)
    probe = stages.get("probe")
    if labels is not None and probe is not None:
        labels["probe_without"] = probe.chosen.get("without_target_labels")
    return {"sources": describe_sources(data, stages), "target_labels": labels}


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
