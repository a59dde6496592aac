"""The paper's figures from the runs of one or several suites (one suite per backbone, say), a set for each task.

``tsne-TASK``       both domains before and after adaptation, a row for each backbone
``losses-TASK``     every loss of PMTrans, a panel for each backbone
``accuracy-TASK``   accuracy of all methods while they train, a panel for each backbone
``attention-TASK``  target images and where the model looks, before and after, a file for each backbone
``mixing-TASK``     the same pairs of images under Mixup, CutMix and PatchMix
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmtrans.bench.jobs import slug
from pmtrans.bench.results import Result
from pmtrans.bench.suite_files import read_results
from pmtrans.data.sampling import Stream
from pmtrans.errors import RunError, one_line
from pmtrans.mixing import MIXINGS, LearnableBeta
from pmtrans.report.drawing import SOURCE, TARGET
from pmtrans.report.embedding import common_embedding
from pmtrans.report.figures import draw_accuracy, draw_losses
from pmtrans.report.material import Material, read_material
from pmtrans.report.run_figures import denormalised_image, save_figure
from pmtrans.report.sections.pictures import attention
from pmtrans.run.folder import RunFolder
from pmtrans.run.metrics import read_metrics

MAX_IMAGES = 500  # images of a domain in a t-SNE
MIXED = ("mixup", "cutmix", "patchmix")


@dataclass(frozen=True)
class AdaptedRun:
    """The run that the figures of a task and backbone show, and the curves of all methods."""

    backbone: str
    material: Material
    curves: dict[str, list[dict[str, object]]]


def draw_figures(
    suites: Sequence[Path], out: Path, say: Callable[[str], None], method: str = "pmtrans", tasks: Sequence[str] = ()
) -> list[Path]:
    """Draw all figures that the runs allow, for the lowest seed of ``method``."""
    results = {suite: read_results(suite) for suite in suites}
    found = [result for part in results.values() for result in part if result.method == method]
    if not found:
        folders = ", ".join(one_line(suite) for suite in suites)
        raise RunError(f"No finished run of {method!r} in {folders}: run 'pmtrans bench SUITE ...' with it first.")
    paths: list[Path] = []
    for task in dict.fromkeys(result.task for result in found if not tasks or result.task in tasks):
        runs = [run for suite, part in results.items() if (run := _adapted(suite, part, task, method)) is not None]
        figures = {"tsne": _tsne(runs), "losses": _losses(runs), "accuracy": _accuracy(runs), "mixing": _mixing(runs)}
        for run in runs:
            section = attention(run.material)
            name = f"attention-{slug(run.backbone)}" if len(runs) > 1 else "attention"
            figures[name] = section.charts[0].figure if section else None
        for name, figure in figures.items():
            if figure is not None:
                paths += save_figure(figure, out / f"{name}-{task}")
        say(f"{task}: {', '.join(name for name, figure in figures.items() if figure is not None)}")
    say(f"Figures: {one_line(out)}")
    return paths


def _adapted(suite: Path, results: Sequence[Result], task: str, method: str) -> AdaptedRun | None:
    of_task = sorted((result for result in results if result.task == task), key=lambda result: result.seed)
    chosen = next((result for result in of_task if result.method == method), None)
    if chosen is None:
        return None

    def folder(result: Result) -> Path:
        return suite / "runs" / task / slug(result.method) / str(result.seed)

    material = read_material(folder(chosen))
    curves = {"source only": material.baseline_metrics} if material.baseline_metrics else {}
    for result in of_task:
        if result.seed == chosen.seed and not (result.method == "source_only" and curves):
            curves[result.method] = read_metrics(RunFolder(folder(result)).metrics)
    return AdaptedRun(chosen.backbone, material, curves)


def _tsne(runs: Sequence[AdaptedRun]) -> Figure | None:
    with_evidence = [run for run in runs if run.material.evidence is not None]
    if not with_evidence:
        return None
    figure = Figure(figsize=(7, 3.4 * len(with_evidence)), layout="constrained")
    for row, run in zip(figure.subplots(len(with_evidence), 2, squeeze=False), with_evidence, strict=True):
        models = {"source only": run.material.baseline_evidence, run.material.method: run.material.evidence}
        available = {name: evidence for name, evidence in models.items() if evidence is not None}
        embedded = common_embedding(
            [
                (e.source_features_ND[:MAX_IMAGES].numpy(), _subsample(e.target_features_MD).numpy())
                for e in available.values()
            ]
        )
        for axes in row[len(available) :]:
            axes.set_axis_off()
        for axes, (name, evidence), points in zip(row, available.items(), embedded, strict=False):
            sources = len(evidence.source_features_ND[:MAX_IMAGES])
            axes.scatter(*points[sources:].T, s=6, color=TARGET, alpha=0.7, linewidths=0, label="target")
            axes.scatter(*points[:sources].T, s=8, color=SOURCE, linewidths=0, label="source")
            axes.set(xticks=[], yticks=[], title=f"{name}, {run.backbone}")
        row[0].legend(loc="upper right", fontsize=7)
    return figure


def _subsample(features_MD: torch.Tensor) -> torch.Tensor:
    """At most ``MAX_IMAGES`` rows, always the same random ones."""
    order = torch.randperm(len(features_MD), generator=torch.Generator().manual_seed(0))[:MAX_IMAGES]
    return features_MD[order.sort().values]


def _panels(runs: Sequence[AdaptedRun], draw: Callable[[Axes, AdaptedRun], None]) -> Figure:
    figure = Figure(figsize=(4.8 * len(runs), 3.6), layout="constrained")
    for axes, run in zip(figure.subplots(1, len(runs), squeeze=False)[0], runs, strict=True):
        draw(axes, run)
        axes.set_title(run.backbone)
    return figure


def _losses(runs: Sequence[AdaptedRun]) -> Figure:
    return _panels(runs, lambda axes, run: draw_losses(axes, run.material.metrics))


def _accuracy(runs: Sequence[AdaptedRun]) -> Figure:
    return _panels(runs, lambda axes, run: draw_accuracy(axes, run.curves))


def _mixing(runs: Sequence[AdaptedRun], pairs: int = 3, seed: int = 0) -> Figure | None:
    """In pixels, with the ratios that each variant draws from Beta(1, 1) for the backbone's own grid."""
    material = runs[0].material
    if material.data is None or material.model is None:
        return None
    preprocessing, grid = material.model.preprocessing, material.model.model.backbone.grid
    images = []
    for name, domain in (("source", material.data.source), ("target", material.data.target.domain)):
        places = [Stream(seed, name, len(domain)).at(number).index for number in range(pairs)]
        images.append(np.stack([denormalised_image(domain.paths[place], preprocessing) for place in places]))
    source, target = images
    columns = {"source": source, "target": target}
    repeat = math.ceil(source.shape[1] / grid[0]), math.ceil(source.shape[2] / grid[1])
    for name in MIXED:
        torch.manual_seed(seed)
        ratio_BN = MIXINGS[name](LearnableBeta((1.0, 1.0), 0.3, 5.0), grid).ratios(pairs).detach().numpy()
        weight = ratio_BN.reshape(pairs, *grid).repeat(repeat[0], 1).repeat(repeat[1], 2)
        weight = weight[:, : source.shape[1], : source.shape[2], None]
        columns[name] = weight * source + (1 - weight) * target
    figure = Figure(figsize=(1.5 * len(columns), 1.6 * pairs), layout="constrained")
    for row, cells in enumerate(figure.subplots(pairs, len(columns), squeeze=False)):
        for axes, (name, pictures) in zip(cells, columns.items(), strict=True):
            axes.imshow(pictures[row])
            axes.set_axis_off()
            if row == 0:
                axes.set_title(name, fontsize=9)
    return figure
