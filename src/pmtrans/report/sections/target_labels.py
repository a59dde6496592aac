"""Target labels that the user gave: what they brought."""

from __future__ import annotations

from typing import Any

from pmtrans.errors import one_line
from pmtrans.report.material import Material
from pmtrans.report.section import Section
from pmtrans.report.sections.headline import TITLES


def target_labels(material: Material) -> Section | None:
    """None where no labels were given, or the run is not finished."""
    summary = material.summary
    if summary is None or not summary.target_labels:
        return None
    labels = summary.target_labels
    without = labels.get("probe_without") or {}
    rows: list[dict[str, Any]] = []
    if without:
        rows.append(
            {
                "title": "linear probe without the labels",
                "kept": without.get("kept_labels_accuracy"),
                "interval": None,
                "oracle": without.get("oracle_accuracy"),
            }
        )
    if labels.get("before"):
        before = labels["before"]
        title = f"{one_line(before['run'], 80)}, the run before the labels"
        rows.append({"title": title, "kept": before["accuracy"], "interval": before, "oracle": None})
    for name, title in TITLES.items():
        entry = summary.evaluations.get(name)
        if entry is None or (name == "adapted" and summary.method == "source_only"):
            continue
        measured = labels["accuracy"].get(name)
        if origin := labels.get("taken_over", {}).get(name):
            title = f"{title}, taken over from {one_line(origin['run'], 80)}"
        shown = f"{title} (shipped)" if name == summary.shipped else title
        rows.append(
            {
                "title": shown,
                "kept": measured["accuracy"] if measured else None,
                "interval": measured,
                "oracle": entry.get("oracle_accuracy"),
            }
        )
    values = {
        "labels": labels,
        "rows": rows,
        "has_oracle": any(row["oracle"] is not None for row in rows),
    }
    return Section("target-labels", "What the target labels brought", "target_labels.html", values=values)
