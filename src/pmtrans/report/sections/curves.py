"""Training curves: losses, accuracy, pseudo labels."""

from __future__ import annotations

from pmtrans.report.drawing import AFTER, BEFORE, logarithmic, new_axes
from pmtrans.report.figures import LOSSES, draw_accuracy, draw_losses, draw_values
from pmtrans.report.material import Line, Material
from pmtrans.report.section import Chart, Section

_COMMON_VALUES = {*LOSSES, "alpha", "gradient_norm", "seconds", "images_per_second", "waiting_share", "epoch", "step"}
_OTHER_SECTIONS = ("beta_", "label_weight_", "pseudo_labels_", "learning_rate.", "score.", "game.", "oracle_")


def training(material: Material) -> Section | None:
    """All loss curves, including values that only some methods log."""
    lines = [line for line in material.metrics if "event" not in line]
    if not lines:
        return None
    losses, axes = new_axes()
    draw_losses(axes, lines)
    charts = [Chart("losses", losses, "Losses over the steps")]
    others = method_specific_values(lines)
    if others:
        figure, axes = new_axes()
        draw_values(axes, lines, {name: name.replace("_", " ") for name in others}, "Other values of the method")
        charts.append(Chart("method-values", figure, "Other values that the method logged"))
    if any(line.get("alpha") is not None for line in lines):
        figure, axes = new_axes()
        draw_values(axes, lines, {"alpha": "alpha"}, "Trade-off", "alpha")
        charts.append(Chart("alpha", figure, "Weight of the game in the objective"))
    if any(line.get("gradient_norm") is not None for line in lines):
        figure, axes = new_axes()
        draw_values(axes, lines, {"gradient_norm": "norm"}, "Gradient norm before clipping")
        logarithmic(axes)
        charts.append(Chart("gradient-norm", figure, "Gradient norm of the descending players"))
    if material.baseline_metrics:
        figure, axes = new_axes()
        draw_losses(axes, material.baseline_metrics)
        axes.set_title("Loss of the source-only baseline")
        charts.append(Chart("baseline-losses", figure, "Loss of the baseline"))
    return Section("training", "Training", charts=tuple(charts))


def method_specific_values(lines: list[Line]) -> list[str]:
    """Logged values that no other chart shows."""
    names = dict.fromkeys(name for line in lines for name, value in line.items() if isinstance(value, float))
    return [name for name in names if name not in _COMMON_VALUES and not name.startswith(_OTHER_SECTIONS)][:7]


def accuracy(material: Material) -> Section | None:
    """Target accuracy, where labels exist; for display only."""
    runs = {"source only": material.baseline_metrics, material.method: material.metrics}
    if not any(line.get("oracle_accuracy") is not None for lines in runs.values() for line in lines):
        return None
    figure, axes = new_axes()
    axes.set_prop_cycle(color=[BEFORE, AFTER])
    draw_accuracy(axes, {name: lines for name, lines in runs.items() if lines})
    if material.summary is not None:
        axes.axvline(material.summary.selected_step, color="0.6", linestyle=":", linewidth=1.2, zorder=0)
    return Section(
        "accuracy",
        "Accuracy over time",
        lead="Target labels were read for this chart only, not for selection. Dotted: the selected model.",
        charts=(Chart("accuracy", figure, "Accuracy on the target"),),
    )


def pseudo_labels(material: Material) -> Section | None:
    """How many pseudo labels changed at each refresh."""
    if not any(line.get("pseudo_labels_changed") is not None for line in material.metrics):
        return None
    figure, axes = new_axes()
    changed = {"pseudo_labels_changed": "changed"}
    draw_values(axes, material.metrics, changed, "Pseudo labels that changed", "% of the target", 100)
    axes.set_ylim(bottom=0)
    return Section(
        "pseudo-labels",
        "Stability of the pseudo labels",
        lead="The share of target images that got another pseudo label at a refresh. It should fall towards zero.",
        charts=(Chart("pseudo-labels", figure, "Share of pseudo labels that changed"),),
    )
