"""Figures of a run: each takes data and draws on axes, so that reports and papers can arrange them as they like.

``metrics`` are the lines of ``metrics.jsonl``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

LOSSES = {
    "loss": "J",
    "classification": r"$L_{cls}$",
    "feature_space": r"$L_f$",
    "label_space": r"$L_l$",
    "cross_entropy": r"$CE_{s,i,t}$",
}


def draw_losses(axes: Axes, metrics: Sequence[dict[str, Any]]) -> None:
    """Every loss against the step."""
    for name, label in LOSSES.items():
        _curve(axes, metrics, name, label)
    axes.set(xlabel="step", ylabel="loss", title="Losses")
    axes.legend(fontsize=8)


def draw_beta_path(axes: Axes, metrics: Sequence[dict[str, Any]]) -> None:
    """Both concentrations against the step."""
    _curve(axes, metrics, "beta_b", "b (source side)")
    _curve(axes, metrics, "beta_g", "g (target side)")
    axes.axhline(1.0, color="0.8", linewidth=1, zorder=0)
    axes.set(xlabel="step", ylabel="concentration", title="The Beta of PatchMix")
    axes.legend(fontsize=8)


def draw_beta_density(axes: Axes, metrics: Sequence[dict[str, Any]], curves: int = 5) -> None:
    """The density of lambda at a few moments, from light (early) to dark (late)."""
    states = [(m["step"], m["beta_b"], m["beta_g"]) for m in metrics if m.get("beta_b")]
    if not states:
        return
    chosen = [states[round(i)] for i in np.linspace(0, len(states) - 1, min(curves, len(states)))]
    x = np.linspace(0.005, 0.995, 200)
    for shade, (step, b, g) in zip(np.linspace(0.25, 1, len(chosen)), chosen, strict=True):
        constant = math.exp(math.lgamma(b + g) - math.lgamma(b) - math.lgamma(g))
        axes.plot(
            x, constant * x ** (b - 1) * (1 - x) ** (g - 1), color=(0.8 * (1 - shade), 0.3, shade), label=f"step {step}"
        )
    axes.set(xlabel=r"$\lambda$ (weight of the source patch)", ylabel="density", title="Density of the mixing ratio")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)


def draw_accuracy(axes: Axes, runs: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Oracle accuracy of several trainings over time."""
    for name, metrics in runs.items():
        seen = [(m["step"], 100 * m["oracle_accuracy"]) for m in metrics if m.get("oracle_accuracy") is not None]
        if seen:
            axes.plot(*zip(*seen, strict=True), marker=".", label=name)
    axes.set(xlabel="step", ylabel="target accuracy (%)", title="Accuracy on the target (oracle)")
    axes.legend(fontsize=8)


def draw_mixed(
    figure: Figure,
    source: NDArray[np.floating],
    target: NDArray[np.floating],
    ratio: NDArray[np.floating],
    grid: tuple[int, int],
) -> None:
    """Pairs of images (B, H, W, 3 in [0, 1]), the map of ratios, and the mixed image, one row a pair."""
    rows = len(source)
    axes = figure.subplots(rows, 4, squeeze=False)
    side = source.shape[1]
    for row in range(rows):
        cells = ratio[row].reshape(grid)
        weight = np.kron(cells, np.ones((math.ceil(side / grid[0]), math.ceil(side / grid[1]))))[:side, :side, None]
        mixed = weight * source[row] + (1 - weight) * target[row]
        for column, (picture, title) in enumerate(
            ((source[row], "source"), (target[row], "target"), (cells, r"$\lambda$ per patch"), (mixed, "intermediate"))
        ):
            cell = axes[row][column]
            cell.imshow(picture, vmin=0, vmax=1, cmap="viridis")
            cell.set_axis_off()
            if row == 0:
                cell.set_title(title, fontsize=9)


def _curve(axes: Axes, metrics: Sequence[dict[str, Any]], name: str, label: str) -> None:
    points = [(m["step"], m[name]) for m in metrics if isinstance(m.get(name), float) and "event" not in m]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, linewidth=1.2)
