"""``comparison.html``: several runs compared in a table, in curves, and by the settings that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from pmtrans.config import DataConfig
from pmtrans.errors import RunError, one_line
from pmtrans.files import write_text
from pmtrans.report.drawing import axis_label, new_axes, report_style
from pmtrans.report.figures import draw_accuracy, draw_values
from pmtrans.report.material import Line, Material, read_material
from pmtrans.report.page import render_page
from pmtrans.report.section import Chart, Section
from pmtrans.run.folder import refuse_own_part
from pmtrans.run.provenance import flatten
from pmtrans.selection.validators import VALIDATORS

CURVES = {
    "loss": "Loss",
    "cross_entropy": "Cross entropy of the game",
    "beta_b": "b of the Beta",
    "beta_g": "g of the Beta",
    "pseudo_labels_changed": "Share of pseudo labels that changed",
    **{f"score.{name}": VALIDATORS[name].title for name in ("source_accuracy", "information_maximisation", "bnm")},
    "score.class_ami": "Classes against clusters (ClassAMI)",
    "game.divergence": "Divergence of Theorem 1",
}


def write_comparison(
    runs: Sequence[Path], out: Path | None = None, first: Sequence[Section] = (), allowed: Sequence[str] = ()
) -> Path:
    """Compare runs, finished or not; written next to the first run unless ``out`` is given.

    ``first``: sections that stand before the comparison.
    """
    if len({run.resolve() for run in runs}) < len(runs):
        raise RunError("A run is named twice: give each run once.")
    path = out or runs[0].resolve().parent / "comparison.html"
    refuse_own_part(path, *runs)
    materials = [read_material(run, allowed) for run in runs]
    names = _names(runs)
    with report_style():
        sections = [*first, _table(names, materials), _curves(names, materials), _settings(names, materials)]
        text = render_page(
            f"{len(runs)} runs compared", [section for section in sections if section], " · ".join(map(one_line, names))
        )
    write_text(path, text)
    return path


def _names(runs: Sequence[Path]) -> list[str]:
    """Folder names, with the parent folder where two are equal."""
    folders = [run.resolve().name for run in runs]
    repeated = {name for name, count in Counter(folders).items() if count > 1}
    return [
        f"{run.resolve().parent.name}/{name}" if name in repeated else name
        for run, name in zip(runs, folders, strict=True)
    ]


def _table(names: Sequence[str], materials: Sequence[Material]) -> Section:
    rows = []
    for name, material in zip(names, materials, strict=True):
        summary = material.summary
        rows.append(
            {
                "name": one_line(name),
                "method": material.method,
                "backbone": material.config.backbone.name,
                "task": _task(material.config.data),
                "seed": material.config.seed,
                "summary": summary,
                "minutes": summary.seconds / 60 if summary else None,
            }
        )
    return Section("runs", "Side by side", "comparison.html", values={"rows": rows})


def _task(data: DataConfig) -> str:
    """The last parts of the paths of both domains."""
    source = " + ".join(Path(place).name for place in data.sources) or "?"
    return f"{source} → {Path(data.target or '?').name}"


def _curves(names: Sequence[str], materials: Sequence[Material]) -> Section | None:
    labels = [axis_label(name, 24) for name in names]
    charts = []
    if any(line.get("oracle_accuracy") is not None for material in materials for line in material.metrics):
        figure, axes = new_axes()
        draw_accuracy(axes, {name: m.metrics for name, m in zip(labels, materials, strict=True)})
        charts.append(Chart("accuracy", figure, "Accuracy on the target"))
    for key, title in CURVES.items():
        if any(isinstance(line.get(key), float) for material in materials for line in material.metrics):
            charts.append(_curve(key, title, labels, [material.metrics for material in materials]))
    return Section("curves", "Curves", charts=tuple(charts)) if charts else None


def _curve(key: str, title: str, labels: Sequence[str], runs: Sequence[list[Line]]) -> Chart:
    figure, axes = new_axes()

    for label, lines in zip(labels, runs, strict=True):
        draw_values(axes, lines, {key: label}, title)
    axes.legend()
    return Chart(key.replace(".", "-").replace("_", "-"), figure, title)


def _settings(names: Sequence[str], materials: Sequence[Material]) -> Section | None:
    """Only the settings in which the runs differ."""
    flat: list[dict[str, Any]] = [flatten(yaml.safe_load(material.config.to_yaml())) for material in materials]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    rows = [
        (key, [one_line(settings.get(key, "–"), 120) for settings in flat])
        for key in keys
        if len({repr(settings.get(key)) for settings in flat}) > 1
    ]
    values = {"names": [one_line(name) for name in names], "rows": rows}
    return Section("settings", "Settings that differ", "differences.html", values=values) if rows else None
