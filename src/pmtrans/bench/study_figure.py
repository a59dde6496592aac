"""Accuracy against time: what a variant reaches, and how long its adaptation takes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from pmtrans.bench.study_table import MEASURES, SCORE, SELECTED, StudyRun

MARKERS = "os^Dv<>ph*"  # with seven colours: 70 variants can be told apart


def draw_study(runs: Sequence[StudyRun], variants: Sequence[str], stem: Path) -> list[Path]:
    """PNG and SVG: a small point for each run, a large one for the mean of a variant over tasks and seeds.

    The accuracy is that of the label-free choice; without target labels the label-free score stands for it.
    """
    from pmtrans.report.drawing import axis_label, new_axes, report_style
    from pmtrans.report.run_figures import save_figure

    measure = SELECTED if any(run.selected is not None for run in runs) else SCORE
    read = MEASURES[measure]
    points = {
        variant: [
            (run.seconds, value)
            for run in runs
            if run.variant == variant and run.seconds is not None and (value := read(run)) is not None
        ]
        for variant in variants
    }
    if not any(points.values()):
        return []
    with report_style():
        figure, axes = new_axes(6.4, 4.0)
        for place, (variant, seen) in enumerate(points.items()):
            if seen:
                colour, marker = f"C{place % 7}", MARKERS[place % len(MARKERS)]
                seconds, values = zip(*seen, strict=True)
                axes.scatter(seconds, values, s=10, color=colour, marker=marker, alpha=0.35, linewidths=0)
                mean = statistics.fmean(seconds), statistics.fmean(values)
                axes.scatter(*mean, s=70, color=colour, marker=marker, label=axis_label(variant, 40))
        title = "accuracy of the label-free choice (%)" if measure == SELECTED else "label-free score (%)"
        axes.set(xlabel="seconds of adaptation", ylabel=title)
        axes.set_xlim(left=0)
        figure.legend(loc="outside right upper")
        return save_figure(figure, stem)
