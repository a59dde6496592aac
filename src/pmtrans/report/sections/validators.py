"""Label-free scores over time, the step each would select, and their disagreement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from pmtrans.report.drawing import sparkline
from pmtrans.report.material import Material
from pmtrans.report.section import Chart, Section
from pmtrans.selection.judge import PREFIX
from pmtrans.selection.rule import RANKED, disagreement
from pmtrans.selection.validators import VALIDATORS

_TITLES = {name: validator.title for name, validator in VALIDATORS.items()} | {
    "arbitration": "Arbitration (estimated gain)"
}


def validators(material: Material) -> Section | None:
    """A row per validator: its curve, the step it would select, and the accuracy there where labels exist."""
    lines = [line for line in material.evaluations if scores_of(line)]
    if not lines:
        return None
    history = [scores_of(line) for line in lines]
    differ = disagreement(history)
    names = list(differ.choices)
    oracle = [line.get("oracle_accuracy") for line in lines]
    rows = []
    for name in names:
        choice = differ.choices[name]
        column = [None if math.isnan(scores[name]) else scores[name] for scores in history]
        rows.append(
            {
                "title": _TITLES.get(name, name.replace("_", " ")),
                "decides": name in RANKED,
                "line": sparkline(column),
                "low": min((v for v in column if v is not None), default=None),
                "high": max((v for v in column if v is not None), default=None),
                "last": column[-1],
                "step": lines[choice]["step"],
                "accuracy": oracle[choice],
            }
        )
    values = {
        "rows": rows,
        "discordance": differ.discordance,
        "spread": differ.spread,
        "evaluations": len(lines),
        "selected": material.summary.selected_step if material.summary else None,
        "selection": material.summary.selection if material.summary else "",
        "has_oracle": any(value is not None for value in oracle),
    }
    chart = Chart("validators", _figure(material, names), "Validators over the steps", inline=False)
    return Section("validators", "Scores without target labels", "validators.html", values=values, charts=(chart,))


def scores_of(line: Mapping[str, Any]) -> dict[str, float]:
    """The validators' scores in a line of the log; null there is a score that was not finite."""
    return {
        name.removeprefix(PREFIX): float("nan") if value is None else float(value)
        for name, value in line.items()
        if name.startswith(PREFIX)
    }


def _figure(material: Material, names: list[str]) -> Figure:
    columns = 3
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(9, 2 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for cell, name in zip(axes, names, strict=False):
        seen = [(line["step"], scores_of(line).get(name)) for line in material.evaluations]
        finite = [(step, value) for step, value in seen if value is not None and not math.isnan(value)]
        if finite:
            cell.plot(*zip(*finite, strict=True), marker=".", linewidth=1.2)
        cell.set_title(_TITLES.get(name, name), fontsize=8)
        if material.summary is not None:
            cell.axvline(material.summary.selected_step, color="0.6", linestyle=":", linewidth=1.2)
    for cell in axes[len(names) :]:
        cell.set_axis_off()
    return figure
