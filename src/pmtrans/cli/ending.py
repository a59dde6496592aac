"""What a finished run says at its end: the verdict, what the model is worth, which one was shipped, what to do next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmtrans.errors import one_line
from pmtrans.run.summary import Summary

if TYPE_CHECKING:
    from rich.table import Table

_VERDICTS = {
    "helped": "adaptation helped",
    "unchanged": "adaptation changed nothing",
    "hurt": "adaptation hurt",
    "cannot tell": "whether adaptation helped cannot be told",
}


def show_summary(summary: Summary, out: Path) -> None:
    """Print a table of the models of the run, then the lines below."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    table = _table(summary)
    if table.row_count:
        console.print(table)
    for line in closing_lines(summary, out):
        console.print(one_line(line, 2000), markup=False, soft_wrap=True)


def closing_lines(summary: Summary, out: Path) -> list[str]:
    """Verdict and reason, the shipped model and its worth, what to do next: with and without target labels."""
    lines = []
    if summary.verdict is None:
        why = summary.verdict_reason or "Nothing of the source was held out to judge with (data.holdout=0)."
        lines.append(f"No verdict. {why}")
    else:
        lines.append(f"Verdict, without labels: {_VERDICTS[summary.verdict]}. {summary.verdict_reason}")
    shipped = _titles(summary).get(summary.shipped, summary.shipped)
    lines.append(f"Shipped in model/: {shipped} ({summary.shipped_reason}).")
    if summary.estimate is not None:
        low, high = (100 * summary.estimate[side] for side in ("low", "high"))
        lines.append(
            f"Its accuracy on the target, estimated without labels: {_percent(summary.estimate['accuracy'])}, "
            f"between {low:.0f} and {high:.0f} % (right in nine of ten of the tasks that it was calibrated on)."
        )
    if summary.given is not None:
        lines.append("Without source images no accuracy is estimated: a few labels of the new place measure it.")
    for name, place in summary.old.items():
        after = "not measured" if place["adapted"] is None else _percent(place["adapted"])
        measure = "accuracy" if place["measure"] == "accuracy" else "agreement with the given model"
        lines.append(f"Old place {name}, {measure}: {_percent(place['given'])} before, moved model {after}.")
    measured = getattr(summary, summary.shipped)
    if measured is not None:
        lines.append(f"Measured with the labels of the target, which chose nothing: {_percent(measured)}.")
    if summary.unknown_share is not None:
        lines.append(
            f"It answers `unknown` for {_percent(summary.unknown_share)} of the target. The accuracies above are those "
            "of the known classes, as if it never did: `pmtrans evaluate` measures both."
        )
    if summary.target_labels:
        lines.append(_of_labels(summary))
    if summary.sources:
        lines.append(f"Accuracy on the held-out part of each source: {_of_sources(summary)}.")
    return [*lines, f"Run folder: {one_line(out)}", "Next:", *(f"  {step}" for step in _next_steps(summary, out))]


def _of_labels(summary: Summary) -> str:
    """What the target labels trained, and what those that were kept measure of the shipped model."""
    labels = summary.target_labels or {}
    text = f"{labels['trained']} target labels trained it"
    if origin := labels.get("taken_over", {}).get(summary.shipped):
        text = f"It was taken over from {one_line(origin['run'], 60)}"
        text += (
            f", where {origin['trained']} target labels trained it"
            if origin["trained"]
            else f" and saw none of the {labels['trained']} target labels"
        )
    measured = labels["accuracy"].get(summary.shipped)
    if not labels["kept"]:
        return f"{text}; none were kept for measuring."
    if measured is None:
        return f"{text}; it was not measured on the {labels['kept']} that were kept."
    low, high = (100 * measured[side] for side in ("low", "high"))
    text += f"; on the {labels['kept']} that were kept it is {_percent(measured['accuracy'])} right"
    text += f" ({low:.0f} to {high:.0f})"
    if labels.get("before"):
        text += f", {one_line(labels['before']['run'], 60)} was {_percent(labels['before']['accuracy'])}"
    return f"{text}."


def _of_sources(summary: Summary) -> str:
    """Of the shipped model."""
    known = summary.sources or {}
    return ", ".join(f"{name} {_percent(entry['accuracy'].get(summary.shipped))}" for name, entry in known.items())


def _next_steps(summary: Summary, out: Path) -> list[str]:
    run = shlex.quote(str(out))
    steps = [f"pmtrans report {run}    one page: what was run, whether it worked, and why"]
    if summary.given is not None:
        steps.append(f"pmtrans adapt {run} --target ... --out ...    move on to the next place")
    if getattr(summary, summary.shipped) is None:
        steps.append(f"pmtrans label-these {run} -n 50 --out to-label    50 labels check the estimate")
    if summary.verdict in ("unchanged", "hurt", "cannot tell") and summary.given is None:
        other, recipe = "bnm" if summary.method == "mcc" else "mcc", shlex.quote(str(out / "config.yaml"))
        steps.append(
            f"pmtrans train --recipe {recipe} --from {run} --method {other} --out {shlex.quote(f'{out}-{other}')}    "
            "another method from the same source stage"
        )
    return [*steps, f"pmtrans predict {run} FOLDER --out predictions.csv"]


def _titles(summary: Summary) -> dict[str, str]:
    titles = {"probe": "linear probe", "source_only": "source only", "adapted": summary.method}
    if summary.given is not None:
        titles = {"source_only": f"given model ({summary.given})", "adapted": "moved model"}
    return {name: title for name, title in titles.items() if (name, summary.method) != ("adapted", "source_only")}


def _table(summary: Summary) -> Table:
    from rich.table import Table
    from rich.text import Text

    rows = _titles(summary)
    measured = {name: getattr(summary, name) for name in rows}
    has_labels = any(value is not None for value in measured.values())
    table = Table(title="Accuracy on the target")
    table.add_column("")
    table.add_column("estimate (90 % interval)", justify="right")
    if has_labels:
        table.add_column("measured with its labels", justify="right")
        table.add_column("mean of classes", justify="right")
    for name, title in rows.items():
        estimate, entry = summary.estimates.get(name), summary.evaluations.get(name) or {}
        if estimate is None and measured[name] is None:
            continue
        cells = [_estimate(estimate)]
        if has_labels:
            cells += [_percent(measured[name]), _percent(entry.get("oracle_per_class_mean"))]
        table.add_row(Text(one_line(title, 60) + (" (shipped)" if name == summary.shipped else "")), *cells)
    return table


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _estimate(value: dict[str, Any] | None) -> str:
    if value is None:
        return "-"
    return f"{_percent(value['accuracy'])} ({100 * value['low']:.0f} to {100 * value['high']:.0f})"
