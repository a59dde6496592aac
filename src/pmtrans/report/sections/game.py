"""The Beta of player P, the label weights, and the players' distance from an equilibrium."""

from __future__ import annotations

from pmtrans.report.drawing import logarithmic, new_axes
from pmtrans.report.figures import draw_beta_density, draw_beta_path, draw_beta_plane, draw_label_weights, draw_values
from pmtrans.report.material import Material
from pmtrans.report.section import Chart, Section

PREFIX = "game."
TITLES = {
    "divergence": "Divergence of Theorem 1 (CE of mixed patches)",
    "p_gain": "What P alone could still gain",
    "f_gain": "What F alone could still gain",
    "c_gain": "What C alone could still gain",
}


def mixing(material: Material) -> Section | None:
    """Density and path of the Beta, and the label weights of mixed images."""
    charts = []
    if any(line.get("beta_b") for line in material.metrics):
        for name, draw, title in (
            ("beta-density", draw_beta_density, "Density of the mixing ratio over time"),
            ("beta-plane", draw_beta_plane, "Path of the Beta in the plane of its concentrations"),
            ("beta-path", draw_beta_path, "Concentrations of the Beta over the steps"),
        ):
            figure, axes = new_axes()
            draw(axes, material.metrics)
            charts.append(Chart(name, figure, title))
    if any(line.get("label_weight_mean") is not None for line in material.metrics):
        figure, axes = new_axes()
        draw_label_weights(axes, material.metrics)
        charts.append(Chart("label-weights", figure, "Source share of the mixed labels"))
    if not charts:
        return None
    return Section(
        "mixing",
        "The Beta of the mixing",
        lead="Player P draws the weight of each source patch from Beta(b, g) and moves both to make the task harder.",
        charts=tuple(charts),
    )


def game(material: Material) -> Section | None:
    """Whatever was logged as ``game.*``: gains near zero mean that no player can do better alone."""
    names = dict.fromkeys(
        name
        for line in material.evaluations
        for name, value in line.items()
        if name.startswith(PREFIX) and isinstance(value, int | float)
    )
    if not names:
        return None
    norms = {
        name: name.removeprefix(PREFIX).replace("_", " ") for name in names if "gradient" in name or "norm" in name
    }
    charts = []
    for name in names:
        if name in norms:
            continue
        figure, axes = new_axes()
        key = name.removeprefix(PREFIX)
        title = TITLES.get(key, key.replace("_", " "))
        draw_values(axes, material.evaluations, {name: title}, title)
        axes.axhline(0, color="0.75", linewidth=1, zorder=0)
        charts.append(Chart(f"game-{key.replace('.', '-').replace('_', '-')}", figure, title))
    if norms:
        figure, axes = new_axes()
        draw_values(axes, material.evaluations, norms, "Gradient norms of the players")
        logarithmic(axes)
        charts.append(Chart("game-gradients", figure, "Gradient norms of the players"))
    return Section(
        "game",
        "The game",
        lead="On fixed held-out batches: the gap between the domains, and how much each player could still gain alone. "
        "At an equilibrium no gain is left.",
        charts=tuple(charts),
    )
