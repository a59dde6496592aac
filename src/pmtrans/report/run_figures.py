"""The figures of one run as files: losses, the Beta, accuracy, and mixed images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pmtrans.data.image import load_image
from pmtrans.data.sampling import Stream
from pmtrans.data.transforms import Preprocessing, evaluation_transform
from pmtrans.files import write_atomically
from pmtrans.mixing import MIXINGS, LearnableBeta
from pmtrans.report.drawing import freeze_layout
from pmtrans.report.figures import draw_accuracy, draw_beta_density, draw_beta_path, draw_losses
from pmtrans.report.image_figures import draw_mixed
from pmtrans.run.folder import RunFolder
from pmtrans.run.metrics import read_metrics


def write_figures(run: Path, mixed: Figure | None = None) -> list[Path]:
    """PNG and SVG files in ``run/figures``."""
    folder = RunFolder(run)
    metrics = read_metrics(folder.metrics)
    trainings = {"source only": read_metrics(folder.baseline.metrics), "adapted": metrics}
    losses, beta, accuracy = (Figure(figsize=(6, 4), layout="constrained") for _ in range(3))
    draw_losses(losses.subplots(), metrics)
    path_axes, density_axes = beta.subplots(1, 2)
    beta.set_size_inches(9, 4)
    draw_beta_path(path_axes, metrics)
    draw_beta_density(density_axes, metrics)
    draw_accuracy(accuracy.subplots(), trainings)
    figures = {"losses": losses, "beta": beta, "accuracy": accuracy, **({"mixed": mixed} if mixed else {})}
    return [path for name, figure in figures.items() for path in save_figure(figure, run / "figures" / name)]


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """The same figure as PNG and as SVG; its layout is computed once."""
    FigureCanvasAgg(figure)
    freeze_layout(figure)
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    for path in paths:
        kind = path.suffix[1:]
        metadata = {"Date": None} if kind == "svg" else None
        write_atomically(
            path,
            lambda temporary, kind=kind, metadata=metadata: figure.savefig(  # type: ignore[misc]
                temporary, format=kind, dpi=120, metadata=metadata
            ),
        )
    return paths


def mixed_figure(
    source: tuple[str, ...],
    target: tuple[str, ...],
    preprocessing: Preprocessing,
    grid: tuple[int, int],
    mixing: str,
    concentrations: tuple[float, float],
    pairs: int = 4,
    seed: int = 0,
) -> Figure:
    """Example pairs, mixed in pixels as PatchMix mixes tokens, with ratios from the run's Beta."""
    torch.manual_seed(seed)
    low = min(concentrations) / 2
    ratio = MIXINGS[mixing](LearnableBeta(concentrations, low, 2 * max(concentrations)), grid).ratios(pairs).detach()
    images = [
        np.stack(
            [denormalised_image(paths[Stream(seed, name, len(paths)).at(n).index], preprocessing) for n in range(pairs)]
        )
        for name, paths in (("source", source), ("target", target))
    ]
    figure = Figure(figsize=(6, 1.5 * pairs), layout="constrained")
    draw_mixed(figure, images[0], images[1], ratio.numpy(), grid)
    return figure


def denormalised_image(path: str, preprocessing: Preprocessing) -> NDArray[np.floating]:
    """An image after the evaluation transform, mapped back to [0, 1]."""
    tensor = evaluation_transform(preprocessing)(load_image(path))
    mean, std = (torch.tensor(values)[:, None, None] for values in (preprocessing.mean, preprocessing.std))
    return (tensor * std + mean).clamp(0, 1).permute(1, 2, 0).numpy()
