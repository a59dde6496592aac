"""Figures of a run: each function draws data on given axes, so that reports and papers can arrange them freely.

``metrics`` are the lines of ``metrics.jsonl``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

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
    axes.set(ylabel="loss", title="Losses")
    _label_steps(axes)
    axes.legend(fontsize=8)


def draw_beta_path(axes: Axes, metrics: Sequence[dict[str, Any]]) -> None:
    """Both concentrations against the step."""
    _curve(axes, metrics, "beta_b", "b (source side)")
    _curve(axes, metrics, "beta_g", "g (target side)")
    axes.axhline(1.0, color="0.8", linewidth=1, zorder=0)
    axes.set(ylabel="concentration", title="The Beta of PatchMix")
    _label_steps(axes)
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


def draw_beta_plane(axes: Axes, metrics: Sequence[dict[str, Any]]) -> None:
    """The path of (b, g): what player P does to the game; the dashed line is the symmetric Beta."""
    states = downsampled([(m["beta_b"], m["beta_g"]) for m in metrics if m.get("beta_b") and "event" not in m])
    if not states:
        return
    b, g = (np.array(values) for values in zip(*states, strict=True))
    low, high = min(b.min(), g.min()), max(b.max(), g.max())
    margin = 0.08 * (high - low) + 0.02
    axes.plot([0, high + margin], [0, high + margin], color="0.75", linestyle="--", linewidth=1, zorder=0)
    axes.plot(b, g, color="0.6", linewidth=1)
    axes.scatter(b, g, c=np.arange(len(b)), cmap="viridis_r", s=8, zorder=2)
    axes.plot(b[0], g[0], "o", color="#8a94a3", label="start")
    axes.plot(b[-1], g[-1], "*", color="#c0304f", markersize=11, label="end")
    axes.set(xlim=(low - margin, high + margin), ylim=(low - margin, high + margin))
    axes.set(xlabel="b (source side)", ylabel="g (target side)", title="Path of the Beta")
    axes.legend(fontsize=8)


def draw_label_weights(axes: Axes, metrics: Sequence[dict[str, Any]]) -> None:
    """The source's share of the mixed label: mean over the batch, and one standard deviation around it."""
    seen = [
        (m["step"], m["label_weight_mean"], m["label_weight_spread"])
        for m in metrics
        if m.get("label_weight_mean") is not None and m.get("label_weight_spread") is not None
    ]
    if not seen:
        return
    step, mean, spread = (np.array(values) for values in zip(*downsampled(seen), strict=True))
    axes.fill_between(step, mean - spread, mean + spread, alpha=0.2, linewidth=0)
    axes.plot(step, mean, linewidth=1.2)
    axes.axhline(0.5, color="0.75", linestyle="--", linewidth=1, zorder=0)
    axes.set(ylabel=r"$\lambda^s$, source share", title="Label weights", ylim=(0, 1))
    _label_steps(axes)


def draw_values(
    axes: Axes,
    metrics: Sequence[dict[str, Any]],
    names: Mapping[str, str],
    title: str,
    unit: str = "",
    factor: float = 1.0,
) -> None:
    """Any logged numbers against the step; ``names``: key of the log -> label."""
    for name, label in names.items():
        seen = [(m["step"], factor * m[name]) for m in metrics if isinstance(m.get(name), int | float)]
        if seen:
            axes.plot(
                *zip(*downsampled(seen), strict=True), marker="." if len(seen) < 60 else "", label=label, linewidth=1.2
            )
    axes.set(ylabel=unit, title=title)
    _label_steps(axes)
    if len(names) > 1:
        axes.legend(fontsize=8)


def draw_accuracy(axes: Axes, runs: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Oracle accuracy of several trainings over time."""
    for name, metrics in runs.items():
        seen = [(m["step"], 100 * m["oracle_accuracy"]) for m in metrics if m.get("oracle_accuracy") is not None]
        if seen:
            axes.plot(*zip(*seen, strict=True), marker=".", label=name)
    axes.set(ylabel="target accuracy (%)", title="Accuracy on the target (oracle)")
    _label_steps(axes)
    axes.legend(fontsize=8)


def downsampled(points: Sequence[tuple[float, ...]], max_points: int = 400) -> list[tuple[float, ...]]:
    """At most ``max_points`` points, each the mean of its neighbours, so that a long run gives a small page."""
    if len(points) <= max_points:
        return list(points)
    return [tuple(np.mean(part, axis=0).tolist()) for part in np.array_split(np.array(points, dtype=float), max_points)]


def _label_steps(axes: Axes) -> None:
    """No half steps on the axis of a short run."""
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10], integer=True))


def _curve(axes: Axes, metrics: Sequence[dict[str, Any]], name: str, label: str) -> None:
    points = [(m["step"], m[name]) for m in metrics if isinstance(m.get(name), float) and "event" not in m]
    if points:
        axes.plot(*zip(*downsampled(points), strict=True), label=label, linewidth=1.2)
