"""Several sources: how much each gave, how well the models do on each, and what each contributes."""

from __future__ import annotations

from typing import Any

from pmtrans.errors import one_line
from pmtrans.report.material import Material
from pmtrans.report.section import Section
from pmtrans.report.sections.headline import TITLES


def sources(material: Material) -> Section | None:
    """None where the run has a single source, or is not finished."""
    summary = material.summary
    if summary is None or not summary.sources:
        return None
    models = [name for name in TITLES if summary.evaluations.get(name) is not None]
    if summary.method == "source_only":
        models = [name for name in models if name != "adapted"]
    rows: list[dict[str, Any]] = [
        {**entry, "name": one_line(name, 120), "change": (entry["contribution"] or {}).get("change", {})}
        for name, entry in summary.sources.items()
    ]
    values = {
        "rows": rows,
        "models": {name: TITLES[name] for name in models},
        "contributions": any(row["change"] for row in rows),
        "has_oracle": any("oracle_accuracy" in row["change"] for row in rows),
    }
    return Section("sources", "Sources", "sources.html", values=values)
