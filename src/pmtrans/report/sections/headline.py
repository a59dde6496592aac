"""The headline: did adaptation help, how accurate is the model, and how certain is that."""

from __future__ import annotations

import re
from typing import Any

from pmtrans.report.material import Material
from pmtrans.report.section import Section
from pmtrans.run.summary import Summary
from pmtrans.selection.assessment import shipped_constants
from pmtrans.selection.validators import VALIDATORS
from pmtrans.selection.verdict import NOTABLE

TITLES = {"probe": "linear probe", "source_only": "source only", "adapted": "adapted model"}
VERDICTS = {
    "helped": "Adaptation helped",
    "unchanged": "Adaptation changed nothing",
    "hurt": "Adaptation hurt",
    "cannot tell": "Whether adaptation helped cannot be told",
}


def headline(material: Material) -> Section:
    """Verdict, estimated accuracy, measured accuracies where labels exist, and the selected step."""
    summary = material.summary
    values: dict[str, Any] = {"state": _state(material), "summary": summary, "method": material.method}
    if summary is None:
        return Section("headline", "This run is not finished", "headline.html", values=values)
    gain = measured_gain(summary)
    trained = "source_only" if material.method == "source_only" else "adapted"
    titles = TITLES if summary.given is None else {"source_only": "given model", "adapted": "moved model"}
    advice = f"Shipped: {titles.get(summary.shipped, summary.shipped)}. {summary.shipped_reason.capitalize()}."
    if contradicts(summary.verdict, gain):
        advice = f"The target's labels say otherwise: trust them. {advice}"
    title = VERDICTS.get(summary.verdict or "", "Finished")
    if summary.method == "linear_probe":
        title, trained = "A linear probe: nothing was trained", "probe"
    elif material.method == "source_only":
        title = "Trained on the source only"
    values |= {
        "advice": advice,
        "selection": _with_titles(summary.selection),
        "gain": gain,
        "trained": trained,
        "titles": {name: title for name, title in titles.items() if name in ("probe", "source_only", trained)},
        "estimate": summary.estimate,
        "parts": sorted((summary.estimate or {}).get("parts", {}).items()),
        "rests_on": shipped_constants().rests_on,
    }
    return Section("headline", title, "headline.html", values=values)


def contradicts(verdict: str | None, gain: float | None) -> bool:
    """Whether the gain measured with labels contradicts the label-free verdict."""
    if verdict in (None, "cannot tell") or gain is None:
        return False
    return verdict != ("unchanged" if abs(gain) < NOTABLE else "helped" if gain > 0 else "hurt")


def _with_titles(explanation: str) -> str:
    """Replace validators' identifiers by their titles."""
    return re.sub(r"[a-z_]+", lambda word: VALIDATORS[word[0]].title if word[0] in VALIDATORS else word[0], explanation)


def measured_gain(summary: Summary) -> float | None:
    """How far the trained model is ahead of the one that the verdict compares it with, by target labels."""
    before = getattr(summary, summary.compared_with) if summary.compared_with else None
    return None if summary.adapted is None or before is None else summary.adapted - before


def _state(material: Material) -> str:
    """The progress of an unfinished run, as text."""
    if material.summary is not None:
        return ""
    lines, stage = material.metrics, "adaptation"
    if not lines:
        lines, stage = material.baseline_metrics, "the source-only baseline"
    if not lines:
        return "Training has not logged a step yet."
    total = f" of {material.steps}" if material.steps else ""
    return (
        f"Training is running, or was stopped, at step {lines[-1]['step']}{total} of {stage}. "
        "This page shows the results so far; the same train command resumes from the last checkpoint."
    )
