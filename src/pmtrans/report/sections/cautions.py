"""Warnings from training, from the data, and from the results."""

from __future__ import annotations

from collections.abc import Iterator

from pmtrans.errors import one_line
from pmtrans.report.material import Material
from pmtrans.report.section import Section
from pmtrans.report.sections.headline import contradicts, measured_gain
from pmtrans.selection.collapse import collapse_signs

MAX_WARNINGS = 40
UNSTABLE = 0.1  # share of pseudo labels that still change at the end
STARVED = 0.3  # share of the time spent waiting for images


def cautions(material: Material) -> Section | None:
    """The distinct warnings, one line each."""
    found = list(dict.fromkeys(one_line(text, 600) for text in _warnings(material)))
    if not found:
        return None
    values = {"warnings": found[:MAX_WARNINGS], "more": max(0, len(found) - MAX_WARNINGS)}
    return Section("cautions", "Warnings", "cautions.html", values=values)


def _warnings(material: Material) -> Iterator[str]:
    summary = material.summary
    yield from _label_warnings(material)
    if material.config.data.given is not None:
        yield (
            "A trained model was moved here without its source images. Where this page says source, it shows the "
            "target images that the given model is surest of, under its labels; source only is the given model."
        )
        for name, place in (summary.old if summary is not None else {}).items():
            after = "not measured" if place["adapted"] is None else f"{place['adapted']:.1%}"
            yield f"Old place {name}: {place['measure']} {place['given']:.1%} with the given model, {after} after."
    yield from _step_warnings(material)
    if material.evidence is not None:
        before = material.baseline_evidence
        signs = collapse_signs(
            material.evidence.sampled().target_logits_MK.softmax(1),
            before.sampled().target_logits_MK.softmax(1) if before is not None else None,
            classes=material.classes or None,
        )
        said = {text for line in material.evaluations for text in line.get("warnings") or ()}
        yield from (sign for sign in signs if sign not in said)
    yield from _game_warnings(material)
    waiting = [line["waiting_share"] for line in material.metrics if line.get("waiting_share") is not None]
    if waiting and sum(waiting) / len(waiting) > STARVED:
        yield f"Training waited for images {sum(waiting) / len(waiting):.0%} of the time: raise data.workers."
    if material.evidence is None and summary is not None:
        yield "No part of the source was held out (data.holdout=0): no model was selected and no accuracy estimated."
    yield from material.warnings
    yield from material.model_warnings


def _step_warnings(material: Material) -> Iterator[str]:
    """Those of the evaluations; what is said again and again of the same thing stands once, as it was said last."""
    said: dict[str, tuple[list[int], str]] = {}
    for line in material.evaluations:
        for text in line.get("warnings") or ():
            steps, _ = said.get(text.partition(":")[0], ([], ""))
            said[text.partition(":")[0]] = ([*steps, line["step"]], text)
    for steps, text in said.values():
        when = f"Step {steps[0]}" if len(steps) == 1 else f"Steps {steps[0]} to {steps[-1]} ({len(steps)} times)"
        yield f"{when}: {text}"


def _label_warnings(material: Material) -> Iterator[str]:
    """Target labels, where they exist, override label-free results."""
    summary = material.summary
    if summary is None or (gain := measured_gain(summary)) is None or summary.verdict is None:
        return
    if contradicts(summary.verdict, gain):
        yield f"Without labels the verdict is «{summary.verdict}»; the target's labels say {100 * gain:+.1f} points."
    estimate, truth = summary.estimate, getattr(summary, summary.shipped)
    if estimate and truth is not None and not estimate["low"] <= truth <= estimate["high"]:
        yield f"The estimate's interval does not contain the measured accuracy, {100 * truth:.1f} %."


def _game_warnings(material: Material) -> Iterator[str]:
    states = [line for line in material.metrics if line.get("beta_b") and line.get("beta_g")]
    method = material.config.method
    if states and "beta_floor" in method and "beta_ceiling" in method and method.get("beta") != "fixed":
        for name, side in (("beta_b", "b"), ("beta_g", "g")):
            if states[-1][name] <= 1.1 * method["beta_floor"]:
                yield f"The Beta's {side} ended at its floor ({states[-1][name]:.2f}): patches are taken whole."
            if states[-1][name] >= 0.98 * method["beta_ceiling"]:
                yield f"The Beta's {side} ended at its ceiling ({states[-1][name]:.2f}): the ratio hardly varies."
    changed = [line["pseudo_labels_changed"] for line in material.metrics if "pseudo_labels_changed" in line]
    if changed and changed[-1] is not None and changed[-1] > UNSTABLE:
        yield f"{changed[-1]:.0%} of the pseudo labels still changed at the last refresh: train longer."
